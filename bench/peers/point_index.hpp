// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "topksoftmax/top_k.hpp"

namespace topksoftmax::bench {

/// Another library's index over the rows of a layer, each with its bias as one more coordinate [V×(d + 1)].
class PointIndex {
 public:
  virtual ~PointIndex() = default;

  /// The k ≤ V rows with the largest inner products with the query [d + 1], best first, as far as the index
  /// finds them, and these products. Returns how many were found. `effort` is the index's own trade-off.
  virtual std::size_t search(const float* query, std::size_t k, std::size_t effort, std::int64_t* ids,
                             float* products) const = 0;

  virtual std::size_t bytes() const = 0;

  /// What a search reads and scores; nothing where the library does not tell.
  virtual QueryWork work() const { return {}; }
};

}  // namespace topksoftmax::bench
