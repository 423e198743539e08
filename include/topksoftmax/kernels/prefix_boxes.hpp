// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"

namespace TOPKSOFTMAX_NAMESPACE::kernels {

/// A box around each block of PrefixBlocks: its rows' leading coordinates as they are stored, x_j =
/// scale·q_j, are in centre_j ± spread_j. Boxes lie like rows do, sixteen together.
struct PrefixBoxes {
  /// Of a box's centre, as of a row. The bias is the largest of its rows', and the radius that of what is
  /// left out of these coordinates.
  PrefixBlocks centres;
  /// 0 ≤ q_j, rounded up. Bias and radius are 0.
  PrefixBlocks spreads;

  /// Number of boxes.
  std::size_t count() const { return centres.rows; }
  /// Bytes of all boxes.
  std::size_t bytes() const { return centres.bytes() + spreads.bytes(); }
};

}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
