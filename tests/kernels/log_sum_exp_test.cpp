// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/kernels/log_sum_exp.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "support/layers.hpp"
#include "topksoftmax/kernels/implementation.hpp"

namespace topksoftmax {
namespace {

using kernels::LogSumExp;
using kernels::detail::Implementation;

constexpr float kNoLogit = -std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

double exact_log_sum(const std::vector<float>& values) {
  const double max = static_cast<double>(*std::max_element(values.begin(), values.end()));
  double sum = 0.0;
  for (const float x : values) sum += std::exp(static_cast<double>(x) - max);
  return max + std::log(sum);
}

class LogSumExpKernel : public ::testing::TestWithParam<Implementation> {
 protected:
  LogSumExp sum_of(const float* values, std::size_t count) const {
    LogSumExp sum;
    GetParam().add_exp(values, count, sum);
    return sum;
  }
  double value_of(const std::vector<float>& values) const {
    return sum_of(values.data(), values.size()).value();
  }
};

TEST_P(LogSumExpKernel, IsTheSameInEveryOrderAndInEveryParts) {
  std::mt19937 engine(1);
  for (const float scale : {1.0F, 12.0F, 60.0F, 1e6F, 1e30F}) {
    for (const float centre : {0.0F, 70.0F, -30.0F, -100.0F}) {
      const Eigen::VectorXf drawn = testing::random_vector(1003, 7, scale).array() + centre;
      std::vector<float> values(drawn.begin(), drawn.end());
      for (std::size_t i = 0; i < values.size(); i += 20) values[i] = kNoLogit;
      const double expected = value_of(values);
      EXPECT_NEAR(expected, exact_log_sum(values), 6e-6 + 1e-15 * std::abs(expected))
          << scale << " " << centre;
      for (int round = 0; round < 4; ++round) {
        std::shuffle(values.begin(), values.end(), engine);
        LogSumExp merged;
        LogSumExp added;
        for (std::size_t first = 0; first < values.size();) {
          const std::size_t count = std::min<std::size_t>(1 + engine() % 200, values.size() - first);
          LogSumExp part = sum_of(values.data() + first, count);
          GetParam().add_exp(values.data() + first, count, added);
          if (round % 2 == 0) {
            merged.add(part);
          } else {
            part.add(merged);
            merged = part;
          }
          first += count;
        }
        EXPECT_EQ(merged.value(), expected) << scale << " " << centre;
        EXPECT_EQ(added.value(), expected) << scale << " " << centre;
      }
    }
  }
}

TEST_P(LogSumExpKernel, HoldsTheLargestAndTheSmallestValues) {
  EXPECT_EQ(value_of({}), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(value_of({kNoLogit, kNoLogit}), -std::numeric_limits<double>::infinity());
  for (const float x : {0.0F, 1.0F, -87.9F, 88.0F, 88.1F, -88.1F, -112.6F, 699.9F, -699.9F, 700.1F, -700.1F,
                        1e4F, -1e4F, 1e15F, kLargest, -kLargest}) {
    EXPECT_NEAR(value_of({x}), static_cast<double>(x), 6e-6) << x;
    EXPECT_NEAR(value_of({x, kNoLogit, x}), exact_log_sum({x, x}), 6e-6) << x;
    EXPECT_NEAR(value_of({-kLargest, x, x, -kLargest}), exact_log_sum({-kLargest, x, x, -kLargest}), 6e-6)
        << x;
  }
}

TEST_P(LogSumExpKernel, CountsEachOfManySmallValues) {
  // A float32 that held the sum would lose them all.
  std::vector<float> values(1 << 20, -17.5F);
  values[77] = 0.0F;
  EXPECT_NEAR(value_of(values), exact_log_sum(values), 1e-6);
  // More of them than float64 holds the whole numbers of at a time.
  std::fill(values.begin(), values.end(), 26.9F);
  EXPECT_NEAR(value_of(values), 26.9F + std::log(static_cast<double>(values.size())), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(
    All, LogSumExpKernel,
    ::testing::ValuesIn(std::vector<Implementation>(kernels::detail::implementations().begin(),
                                                    kernels::detail::implementations().end())),
    [](const auto& kernel) { return std::string(kernel.param.name); });

}  // namespace
}  // namespace topksoftmax
