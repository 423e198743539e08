// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::kernels {

/// The coordinates of every row behind its prefix as int8, for the few rows that the prefix could not rule
/// out: all that is read of a row lies together, in as few cache lines as it takes. A row is, in this order:
///   q       width × int8     w_j ≈ scale · q_j
///           unused bytes, up to the end of the last cache line less 8
///   scale   float32
///   radius  float32          how far the row's logit may be from the estimate, for a context of radius 1
/// Only this struct knows the layout: kernels, writers and readers ask it.
struct PrefixTails {
  /// Bytes of a cache line.
  static constexpr std::size_t kLine = 64;

  /// What is behind a row's coordinates.
  struct Footer {
    /// The step of the row's coordinates: w_j ≈ scale · q_j.
    float scale;
    /// How far its logit may be from the estimate, for a context of radius 1.
    float radius;
  };

  const std::byte* data = nullptr;  ///< aligned to 64 bytes
  /// Number of rows.
  std::size_t rows = 0;
  std::size_t width = 0;  ///< coordinates of a row, at most kMaxWidth

  /// Cache lines of a row.
  constexpr std::size_t lines() const { return (width + sizeof(Footer) + kLine - 1) / kLine; }
  /// Bytes of a row.
  constexpr std::size_t row_bytes() const { return lines() * kLine; }
  /// Bytes of all rows.
  std::size_t bytes() const { return rows * row_bytes(); }
  /// Coordinates that fit into so many cache lines.
  static constexpr std::size_t width_of(std::size_t lines) { return lines * kLine - sizeof(Footer); }

  /// Where a row begins, with its coordinates.
  const std::byte* row(std::size_t i) const { return data + i * row_bytes(); }

  /// The footer of the row that begins there.
  Footer footer(const void* row) const {
    Footer footer;
    std::memcpy(&footer, static_cast<const std::byte*>(row) + row_bytes() - sizeof(Footer), sizeof(Footer));
    return footer;
  }
  /// Writes the footer of the row that begins there.
  void put_footer(void* row, const Footer& footer) const {
    std::memcpy(static_cast<std::byte*>(row) + row_bytes() - sizeof(Footer), &footer, sizeof(Footer));
  }
};

/// What tails are asked with: a context's coordinates as 15-bit integers, h_j ≈ scale · n_j, of which none is
/// above PrefixContext::largest() of their number.
struct TailContext {
  const std::int16_t* n = nullptr;  ///< [PrefixTails::row_bytes()], zeros behind the coordinates
  /// The step.
  float scale = 0.0F;
  float radius = 0.0F;  ///< what the rows' radii are multiplied by
};

}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
