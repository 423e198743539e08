// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/rows/ippt.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "support/layers.hpp"
#include "support/reference.hpp"
#include "topksoftmax/kernels/kernels.hpp"

namespace topksoftmax {
namespace {

using testing::random_layer;
using testing::random_matrix;
using testing::random_vector;
using testing::Reference;

std::vector<float> floats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

/// The transformed vectors of a layer and a context, and all squared distances.
struct Transformed {
  Transformed(const SoftmaxLayer& layer, const Eigen::VectorXf& h) : ippt(layer), context(ippt.dim()) {
    ippt.transform_context(h.data(), context.data());
    for (std::size_t token = 0; token < layer.vocab(); ++token) {
      std::vector<double>& row = rows.emplace_back(ippt.dim());
      ippt.transform_row(token, row.data());
      double sum = 0.0;
      for (std::size_t j = 0; j < row.size(); ++j) sum += (row[j] - context[j]) * (row[j] - context[j]);
      squared_distances.push_back(sum);
    }
  }

  Ippt ippt;
  std::vector<double> context;
  std::vector<std::vector<double>> rows;
  std::vector<double> squared_distances;
};

TEST(Ippt, EveryRowHasTheSameLength) {
  const Transformed transformed(random_layer(300, 20, 1), random_vector(20, 2));
  for (const auto& row : transformed.rows) {
    EXPECT_NEAR(std::sqrt(std::inner_product(row.begin(), row.end(), row.begin(), 0.0)),
                transformed.ippt.radius(), 1e-9);
  }
}

TEST(Ippt, LogitsComeBackFromDistances) {
  for (const bool biased : {true, false}) {
    const SoftmaxLayer layer =
        biased ? random_layer(300, 20, 1) : SoftmaxLayer::own(random_matrix(300, 20, 1, 0.3F));
    const Eigen::VectorXf h = random_vector(20, 2, 3.0F);
    const Transformed transformed(layer, h);
    const double norm = h.cast<double>().squaredNorm();
    const Reference reference(layer, h);
    for (std::size_t token = 0; token < layer.vocab(); ++token) {
      EXPECT_NEAR(transformed.ippt.logit(transformed.squared_distances[token], norm), reference.logits[token],
                  1e-10);
    }
  }
}

TEST(Ippt, LogitsComeBackFromTheKernelsDistances) {
  const SoftmaxLayer layer = random_layer(300, 200, 3);
  const Eigen::VectorXf h = random_vector(200, 4);
  const Transformed transformed(layer, h);
  const Reference reference(layer, h);
  const double norm = h.cast<double>().squaredNorm();
  const std::vector<float> context = floats(transformed.context);
  for (const kernels::detail::Implementation& kernel : kernels::detail::implementations()) {
    for (std::size_t token = 0; token < layer.vocab(); ++token) {
      const double squared = static_cast<double>(kernel.squared_distance(
          floats(transformed.rows[token]).data(), context.data(), transformed.ippt.dim()));
      EXPECT_NEAR(transformed.ippt.logit(squared, norm), reference.logits[token],
                  0.5 * squared * static_cast<double>(transformed.ippt.dim() + 6) * std::ldexp(1.0, -24))
          << kernel.name;
    }
  }
}

TEST(Ippt, TheNearestRowsHaveTheLargestLogits) {
  const SoftmaxLayer layer = random_layer(300, 20, 1);
  for (unsigned seed = 0; seed < 20; ++seed) {
    const Eigen::VectorXf h = random_vector(20, 100 + seed);
    const Transformed transformed(layer, h);
    const Reference reference(layer, h);
    std::vector<std::size_t> by_distance(300);
    std::iota(by_distance.begin(), by_distance.end(), 0U);
    std::vector<std::size_t> by_logit = by_distance;
    std::sort(by_distance.begin(), by_distance.end(), [&](std::size_t a, std::size_t b) {
      return transformed.squared_distances[a] < transformed.squared_distances[b];
    });
    std::sort(by_logit.begin(), by_logit.end(),
              [&](std::size_t a, std::size_t b) { return reference.logits[a] > reference.logits[b]; });
    EXPECT_EQ(by_distance, by_logit);
  }
}

}  // namespace
}  // namespace topksoftmax
