// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace topksoftmax::kernels {

/// The coordinates of every row behind its prefix as int8, for the few rows that the prefix could not rule
/// out: all that is read of a row lies together, in as few cache lines as it takes. A row is, in this order:
///   q       width × int8     w_j ≈ scale · q_j
///           unused bytes, up to the end of the last cache line less 8
///   scale   float32
///   radius  float32          how far the row's logit may be from the estimate, for a context of radius 1
struct PrefixTails {
  static constexpr std::size_t kLine = 64;
  static constexpr std::size_t kFooter = 2 * sizeof(float);
  /// Coordinates that fit into one cache line.
  static constexpr std::size_t kWidthOfLine = kLine - kFooter;

  const std::byte* data = nullptr;  ///< aligned to 64 bytes
  std::size_t rows = 0;
  std::size_t width = 0;

  std::size_t row_bytes() const { return (width + kFooter + kLine - 1) / kLine * kLine; }
  std::size_t bytes() const { return rows * row_bytes(); }
};

/// What tails are asked with.
struct TailContext {
  const float* h = nullptr;  ///< [PrefixTails::row_bytes()], zeros behind the coordinates
  float radius = 0.0F;       ///< what the rows' radii are multiplied by
};

}  // namespace topksoftmax::kernels
