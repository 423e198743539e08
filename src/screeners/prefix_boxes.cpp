// SPDX-License-Identifier: Apache-2.0
#include "screeners/prefix_boxes.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace topksoftmax {
namespace {

constexpr const char* kCentres = "boxes.centres";
constexpr const char* kSpreads = "boxes.spreads";

/// The coordinates of a row as they are stored.
void read_row(const PrefixStore& rows, std::size_t row, std::vector<double>& x) {
  const double scale = rows.scale(row);
  for (std::size_t j = 0; j < x.size(); ++j) x[j] = scale * rows.coordinate(row, j);
}

}  // namespace

PrefixBoxStore::PrefixBoxStore(const PrefixStore& rows) {
  const std::size_t width = rows.blocks().width;
  const std::size_t count = rows.blocks().blocks();
  PrefixWriter centres(count, width);
  PrefixWriter spreads(count, width);
  std::vector<double> x(width);
  std::vector<double> low(width);
  std::vector<double> high(width);
  std::vector<double> middle(width);
  std::vector<double> spread(width);
  std::vector<std::int8_t> q(std::max<std::size_t>(width, 1));
  for (std::size_t box = 0; box < count; ++box) {
    const std::size_t first = box * kernels::PrefixBlocks::kRows;
    const std::size_t last = std::min(first + kernels::PrefixBlocks::kRows, rows.blocks().rows);
    float bias = -std::numeric_limits<float>::infinity();
    double radius = 0.0;
    std::fill(low.begin(), low.end(), std::numeric_limits<double>::infinity());
    std::fill(high.begin(), high.end(), -std::numeric_limits<double>::infinity());
    for (std::size_t row = first; row < last; ++row) {
      bias = std::max(bias, rows.bias(row));
      if (!std::isfinite(rows.scale(row)) || !std::isfinite(rows.radius(row))) {
        radius = std::numeric_limits<double>::infinity();  // what has overflowed keeps its box open
        continue;
      }
      read_row(rows, row, x);
      radius = std::max(radius, rows.radius(row));
      for (std::size_t j = 0; j < width; ++j) {
        low[j] = std::min(low[j], x[j]);
        high[j] = std::max(high[j], x[j]);
      }
    }
    for (std::size_t j = 0; j < width; ++j) {
      if (low[j] > high[j]) low[j] = high[j] = 0.0;
      middle[j] = 0.5 * (low[j] + high[j]);
    }
    const double scale = centres.put(box, bias, middle, q.data());
    centres.put_radius(box, radius);
    for (std::size_t j = 0; j < width; ++j) {
      const double centre = scale * q[j];
      spread[j] = std::max(high[j] - centre, centre - low[j]) * (1.0 + 1e-9);
    }
    spreads.put_up(box, spread);
  }
  centres_ = std::move(centres).finish();
  spreads_ = std::move(spreads).finish();
}

PrefixBoxStore::PrefixBoxStore(const IndexReader& in, std::size_t count, std::size_t width)
    : centres_(in, kCentres, count, width), spreads_(in, kSpreads, count, width) {}

void PrefixBoxStore::save(IndexWriter& out) const {
  centres_.save(out, kCentres);
  spreads_.save(out, kSpreads);
}

}  // namespace topksoftmax
