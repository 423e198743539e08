// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "topksoftmax/certified/boxes.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/numeric/round_outwards.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"
#include "topksoftmax/rows/prefix_store.hpp"
#include "topksoftmax/rows/prefix_writer.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Makes the boxes around the blocks of some rows, as these are stored, in their leading coordinates: as many
/// as the boxes have. Different boxes may be made at the same time, by makers of their own.
class BoxMaker {
 public:
  /// `radii` [rows]: how far a row's logit may be from the product of these coordinates.
  BoxMaker(const PrefixStore& rows, std::span<const float> radii, PrefixWriter& centres,
           PrefixWriter& spreads)
      : rows_(rows),
        radii_(radii),
        centres_(centres),
        spreads_(spreads),
        low_(centres.blocks().width),
        high_(low_.size()),
        middle_(low_.size()),
        spread_(low_.size()),
        q_(std::max<std::size_t>(low_.size(), 1)) {}

  void make(std::size_t box) {
    const std::size_t first = box * kernels::PrefixBlocks::kRows;
    const std::size_t last = std::min(first + kernels::PrefixBlocks::kRows, rows_.blocks().rows);
    std::fill(low_.begin(), low_.end(), std::numeric_limits<double>::infinity());
    std::fill(high_.begin(), high_.end(), -std::numeric_limits<double>::infinity());
    float bias = -std::numeric_limits<float>::infinity();
    double radius = 0.0;
    for (std::size_t row = first; row < last; ++row) {
      bias = std::max(bias, rows_.bias(row));
      radius = std::max(radius, include(row));
    }
    for (std::size_t j = 0; j < low_.size(); ++j) {
      if (low_[j] > high_[j]) low_[j] = high_[j] = 0.0;
      middle_[j] = 0.5 * (low_[j] + high_[j]);
    }
    const double scale = centres_.put(box, bias, middle_, q_.data());
    centres_.put_radius(box, radius);
    for (std::size_t j = 0; j < low_.size(); ++j) {
      const double centre = scale * q_[j];
      spread_[j] = std::max(high_[j] - centre, centre - low_[j]) * kOutward;
    }
    spreads_.put_up(box, spread_);
  }

 private:
  /// Takes a row's coordinates into low and high; returns its radius.
  double include(std::size_t row) {
    const double scale = rows_.scale(row);
    const auto radius = static_cast<double>(radii_[row]);
    if (!std::isfinite(scale) || !std::isfinite(radius)) {
      // A row that has overflowed keeps its box open.
      return std::numeric_limits<double>::infinity();
    }
    for (std::size_t j = 0; j < low_.size(); ++j) {
      const double x = scale * rows_.coordinate(row, j);
      low_[j] = std::min(low_[j], x);
      high_[j] = std::max(high_[j], x);
    }
    return radius;
  }

  const PrefixStore& rows_;
  std::span<const float> radii_;
  PrefixWriter& centres_;
  PrefixWriter& spreads_;
  std::vector<double> low_;
  std::vector<double> high_;
  std::vector<double> middle_;
  std::vector<double> spread_;
  std::vector<std::int8_t> q_;
};

/// The boxes around the blocks of `rows` in `width` coordinates, given the rows' radii in these. Cost:
/// V·width.
inline BoxStore boxes_around(const PrefixStore& rows, std::size_t width, std::span<const float> radii,
                             const Executor& executor) {
  constexpr std::size_t kBoxesAtOnce = 256;
  const std::size_t count = rows.blocks().blocks();
  PrefixWriter centres(count, width);
  PrefixWriter spreads(count, width);
  for_each_part(executor, count, kBoxesAtOnce, [&](std::size_t first, std::size_t boxes) {
    BoxMaker maker(rows, radii, centres, spreads);
    for (std::size_t box = first; box < first + boxes; ++box) maker.make(box);
  });
  return {std::move(centres).finish(), std::move(spreads).finish()};
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
