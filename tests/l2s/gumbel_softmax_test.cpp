// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/l2s/gumbel_softmax.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "support/layers.hpp"

namespace topksoftmax {
namespace {

using testing::random_matrix;

TEST(StraightThrough, DerivativesAreThoseOfTheSoftLoss) {
  // The surrogate whose derivative is taken: Σ_i Σ_t softmax((v_t·h_i + g_it)/temperature)_t · e_it.
  constexpr Eigen::Index n = 6;
  constexpr Eigen::Index r = 5;
  constexpr Eigen::Index d = 4;
  const RowMajorMatrix H = random_matrix(n, d, 1);
  const RowMajorMatrix costs = random_matrix(n, r, 3);
  const RowMajorMatrix noise = random_matrix(n, r, 4);
  for (const double temperature : {1.0, 0.5}) {
    RowMajorMatrix V = random_matrix(r, d, 2);
    const auto surrogate = [&](const RowMajorMatrix& at) {
      double loss = 0.0;
      for (Eigen::Index i = 0; i < n; ++i) {
        double sum = 0.0;
        double weighted = 0.0;
        for (Eigen::Index t = 0; t < r; ++t) {
          const double a =
              (H.row(i).cast<double>().dot(at.row(t).cast<double>()) + static_cast<double>(noise(i, t))) /
              temperature;
          sum += std::exp(a);
          weighted += std::exp(a) * static_cast<double>(costs(i, t));
        }
        loss += weighted / sum;
      }
      return loss;
    };
    RowMajorMatrix derivatives = H * V.transpose();
    std::vector<std::int32_t> drawn(n);
    straight_through(n, r, costs.data(), noise.data(), temperature, derivatives.data(), drawn.data());
    const RowMajorMatrix gradient = derivatives.transpose() * H / static_cast<float>(temperature);
    for (Eigen::Index t = 0; t < r; ++t) {
      for (Eigen::Index j = 0; j < d; ++j) {
        constexpr float step = 1e-2F;
        RowMajorMatrix up = V;
        RowMajorMatrix down = V;
        up(t, j) += step;
        down(t, j) -= step;
        const double numeric = (surrogate(up) - surrogate(down)) / (2.0 * static_cast<double>(step));
        EXPECT_NEAR(gradient(t, j), numeric, 2e-3);
      }
    }
    const RowMajorMatrix noisy = H * V.transpose() + noise;
    for (Eigen::Index i = 0; i < n; ++i) {
      Eigen::Index best = 0;
      noisy.row(i).maxCoeff(&best);
      EXPECT_EQ(drawn[static_cast<std::size_t>(i)], best) << "the forward pass is one-hot";
    }
  }
}

}  // namespace
}  // namespace topksoftmax
