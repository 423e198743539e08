// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstddef>

#include "topksoftmax/top_k.hpp"

namespace topksoftmax::testing {

/// How often bounds have answered: a query for which all rows are scored is right whatever they are.
class ByBounds {
 public:
  /// `rows`: those that might have been answered.
  void count(const TopK& answer, std::size_t rows) {
    ++queries_;
    if (!answer.work.fell_back && 2 * answer.work.candidates <= rows) ++by_bounds_;
  }

  /// Fails unless at least half of the queries were answered without a scan, and with at most half of the
  /// rows scored.
  void expect_mostly_by_bounds() const {
    EXPECT_GT(queries_, 0U);
    EXPECT_GE(2 * by_bounds_, queries_)
        << "share " << static_cast<double>(by_bounds_) / static_cast<double>(queries_);
  }

 private:
  std::size_t queries_ = 0;
  std::size_t by_bounds_ = 0;
};

}  // namespace topksoftmax::testing
