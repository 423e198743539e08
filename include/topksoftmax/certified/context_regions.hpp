// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/rows/stored_rows.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Regions of contexts, in each of which the estimate of log Z has models of its own: a context is in that
/// whose centre has the largest product with its leading coordinates. Cost of finding it: regions·leading
/// multiply-adds. Keeps 4·regions·leading bytes.
class ContextRegions {
 public:
  static constexpr std::size_t kMost = 16;

  /// A single one.
  ContextRegions() = default;
  /// Those of these centres [at most kMost × leading].
  explicit ContextRegions(const RowMajorMatrix& centres) : centres_(centres) {}

  std::size_t count() const { return std::max<std::size_t>(centres_.count(), 1); }
  std::size_t bytes() const { return centres_.rows().bytes(centres_.count()); }

  /// The region of a context with these coordinates, at least `leading` of them: below count().
  std::size_t of(const float* coordinates) const {
    if (centres_.count() < 2) return 0;
    std::array<float, kMost> products{};
    kernels::scan(centres_.rows(), 0, centres_.count(), coordinates, products.data());
    const auto end = products.begin() + static_cast<std::ptrdiff_t>(centres_.count());
    return static_cast<std::size_t>(std::max_element(products.begin(), end) - products.begin());
  }

  /// Puts what load() reads into `out`: nothing for a single region.
  void save(IndexWriter& out) const {
    if (centres_.count() > 0) out.array(kCentres, {centres_.count(), centres_.dim()}, centres_.weights());
  }

  /// What save() has written, of so many leading coordinates.
  static ContextRegions load(const IndexReader& in, std::size_t leading) {
    ContextRegions regions;
    if (!in.has_tensor(kCentres)) return regions;
    regions.centres_ = StoredRows(in.floats(kCentres, {IndexReader::any, leading}), leading);
    if (regions.centres_.count() == 0 || regions.centres_.count() > kMost) {
      throw in.damaged(kCentres, "must have 1 to 16 rows");
    }
    return regions;
  }

 private:
  static constexpr std::string_view kCentres = "outside.regions";

  StoredRows centres_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
