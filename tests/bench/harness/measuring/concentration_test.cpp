// SPDX-License-Identifier: Apache-2.0
#include "harness/measuring/concentration.hpp"

#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <cmath>
#include <random>

namespace topksoftmax::bench {
namespace {

/// Independent normal coordinates with energies 1/i in a random basis, around a mean of energy `mean`.
RowMajorMatrix contexts(Eigen::Index count, Eigen::Index dim, double mean, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  RowMajorMatrix H(count, dim);
  for (Eigen::Index row = 0; row < count; ++row) {
    for (Eigen::Index i = 0; i < dim; ++i) H(row, i) = normal(random) / std::sqrt(static_cast<float>(i + 1));
  }
  H.col(dim - 1).array() += static_cast<float>(std::sqrt(mean));
  std::mt19937 same(7);
  Eigen::MatrixXf basis(dim, dim);
  for (float& value : basis.reshaped()) value = normal(same);
  return H * Eigen::MatrixXf(Eigen::HouseholderQR<Eigen::MatrixXf>(basis).householderQ());
}

double harmonic(Eigen::Index count) {
  double sum = 0.0;
  for (Eigen::Index i = 1; i <= count; ++i) sum += 1.0 / static_cast<double>(i);
  return sum;
}

TEST(Concentration, IsThatOfTheDistribution) {
  constexpr Eigen::Index kDim = 256;
  const double all = harmonic(kDim);
  const double mean = all;  // half of all energy
  const Concentration found = concentration_of(contexts(6000, kDim, mean, 1), contexts(2000, kDim, mean, 2));
  for (std::size_t i = 0; i < Concentration::directions.size(); ++i) {
    const auto count = static_cast<Eigen::Index>(Concentration::directions[i]);
    EXPECT_NEAR(found.centred[i], harmonic(count) / all, 0.03) << count;
    EXPECT_NEAR(found.plain[i], (harmonic(count - 1) + mean) / (all + mean), 0.03) << count;
  }
}

TEST(Concentration, SaysWhatItCanOfFewContexts) {
  const Concentration few = concentration_of(contexts(3, 8, 0.0, 1), contexts(2, 8, 0.0, 2));
  EXPECT_GT(few.plain[0], 0.0);
  EXPECT_EQ(few.plain[0], few.plain[3]);
  const Concentration square = concentration_of(contexts(30, 8, 0.0, 1), contexts(20, 8, 0.0, 2));
  EXPECT_NEAR(square.plain[0], 1.0, 1e-5);
  EXPECT_NE(describe(square), "");
  const Concentration none = concentration_of(RowMajorMatrix(0, 8), contexts(2, 8, 0.0, 2));
  EXPECT_TRUE(std::isnan(none.plain[0]));
  EXPECT_EQ(describe(none), "");
}

TEST(Concentration, NamesNoMoreDirectionsThanThereAre) {
  const auto told = [](Eigen::Index train, Eigen::Index dim) {
    const std::string text =
        describe(concentration_of(contexts(train, dim, 0.0, 1), contexts(20, dim, 0.0, 2)));
    const std::size_t begin = text.find("in their ");
    return text.substr(begin, text.find(':') - begin);
  };
  EXPECT_EQ(told(3, 64), "in their 3 leading directions");
  EXPECT_EQ(told(200, 16), "in their 16 leading directions");
  EXPECT_EQ(told(50, 64), "in their 16, 32 and 50 leading directions");
  EXPECT_EQ(told(200, 160), "in their 16, 32, 64 and 128 leading directions");
}

}  // namespace
}  // namespace topksoftmax::bench
