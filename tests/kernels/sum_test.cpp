// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "support/layers.hpp"
#include "topksoftmax/kernels/implementation.hpp"

namespace topksoftmax {
namespace {

using kernels::kReadBlock;
using kernels::detail::Implementation;

class SumKernel : public ::testing::TestWithParam<Implementation> {};

TEST_P(SumKernel, AgreesWithDoublePrecision) {
  for (const std::size_t blocks : {1U, 2U, 3U, 8U, 33U}) {
    // One value beyond each end: neither may be read into the sum, wherever the values begin.
    const auto count = static_cast<Eigen::Index>(blocks * kReadBlock);
    Eigen::VectorXf values = testing::random_vector(count + 2, static_cast<unsigned>(blocks));
    values[0] = values[count + 1] = 1e6F;
    const Eigen::VectorXd exact = values.segment(1, count).cast<double>();
    const double error = static_cast<double>(count) * std::ldexp(1.0, -24) * exact.cwiseAbs().sum();
    EXPECT_NEAR(GetParam().sum(values.data() + 1, blocks * kReadBlock), exact.sum(), error) << blocks;
  }
}

TEST_P(SumKernel, OfNothingIsZero) {
  const float value = 1.0F;
  EXPECT_EQ(GetParam().sum(&value, 0), 0.0F);
}

INSTANTIATE_TEST_SUITE_P(
    All, SumKernel,
    ::testing::ValuesIn(std::vector<Implementation>(kernels::detail::implementations().begin(),
                                                    kernels::detail::implementations().end())),
    [](const auto& kernel) { return std::string(kernel.param.name); });

}  // namespace
}  // namespace topksoftmax
