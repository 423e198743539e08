// SPDX-License-Identifier: Apache-2.0
#include "harness/reports/plot.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace topksoftmax {
namespace {

std::vector<std::string> labels_of(const bench::Axis& axis) {
  std::vector<std::string> labels;
  for (const bench::Tick& tick : axis.ticks) labels.push_back(tick.label);
  return labels;
}

TEST(LogAxis, HasTicksAtOneTwoAndFive) {
  EXPECT_EQ(labels_of(bench::log_axis("", {0.3, 40.0})),
            (std::vector<std::string>{"0.5", "1", "2", "5", "10", "20"}));
  EXPECT_EQ(labels_of(bench::log_axis("", {})), std::vector<std::string>{"1"});
}

TEST(LogAxis, EndsForAllValuesThatADoubleHas) {
  using Limits = std::numeric_limits<double>;
  for (const double value : {0.0, Limits::denorm_min(), Limits::max(), Limits::infinity(), -1.0}) {
    const bench::Axis axis = bench::log_axis("", {value, 1.0});
    EXPECT_GT(axis.low, 0.0) << value;
    EXPECT_TRUE(std::isfinite(axis.high)) << value;
    EXPECT_LE(axis.ticks.size(), 3U * 309U) << value;
  }
}

}  // namespace
}  // namespace topksoftmax
