// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "support/layers.hpp"
#include "topksoftmax/kernels/implementation.hpp"

namespace topksoftmax {
namespace {

using kernels::detail::Implementation;

class SquaredDistance : public ::testing::TestWithParam<Implementation> {};

TEST_P(SquaredDistance, AgreesWithDoublePrecision) {
  for (const Eigen::Index dim : {1, 2, 3, 4, 7, 15, 16, 17, 31, 63, 64, 65, 127, 200, 202, 258, 1024, 1537}) {
    for (unsigned seed = 0; seed < 8; ++seed) {
      // One value beyond each end: neither may be read into the sum, wherever the vectors begin.
      const Eigen::VectorXf a = testing::random_vector(dim + 2, 2 * seed + 1);
      Eigen::VectorXf b = testing::random_vector(dim + 2, 2 * seed + 2);
      b[0] = b[dim + 1] = 1e6F;
      double expected = 0.0;
      for (Eigen::Index j = 1; j <= dim; ++j) {
        expected += std::pow(static_cast<double>(a[j]) - static_cast<double>(b[j]), 2);
      }
      const float found =
          GetParam().squared_distance(a.data() + 1, b.data() + 1, static_cast<std::size_t>(dim));
      EXPECT_NEAR(found, expected, static_cast<double>(dim + 3) * std::ldexp(1.0, -24) * expected) << dim;
      const double length = a.segment(1, dim).cast<double>().squaredNorm();
      const float squared = GetParam().squared_length(a.data() + 1, static_cast<std::size_t>(dim));
      EXPECT_NEAR(squared, length, static_cast<double>(dim + 3) * std::ldexp(1.0, -24) * length) << dim;
    }
  }
}

TEST_P(SquaredDistance, OfAVectorToItselfIsZero) {
  const Eigen::VectorXf a = testing::random_vector(203, 5, 1e10F);
  EXPECT_EQ(GetParam().squared_distance(a.data(), a.data(), 203), 0.0F);
  EXPECT_EQ(GetParam().squared_distance(a.data(), a.data() + 1, 0), 0.0F);
}

INSTANTIATE_TEST_SUITE_P(
    All, SquaredDistance,
    ::testing::ValuesIn(std::vector<Implementation>(kernels::detail::implementations().begin(),
                                                    kernels::detail::implementations().end())),
    [](const auto& kernel) { return std::string(kernel.param.name); });

}  // namespace
}  // namespace topksoftmax
