// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/quantized/quantized.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/layers.hpp"
#include "support/reference.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/quantized/build.hpp"

namespace topksoftmax {
namespace {

using testing::random_layer;
using testing::random_vector;
using testing::Reference;

TEST(Quantized, RefinesTheTokensWithTheBestEightBitLogits) {
  for (const Eigen::Index dim : {1, 3, 16, 50, 1500}) {
    const SoftmaxLayer layer = random_layer(500, dim, 1);
    const auto head = Quantized::build(layer, {.refine_width = 40});
    const Eigen::VectorXf h = random_vector(dim, 3);
    // A weight is wrong by half a step at most, a step being the row's largest weight / 126 or less.
    const Reference exact(layer, h);
    const RowMajorMatrix W = layer.weights();
    std::vector<double> slack;
    for (Eigen::Index v = 0; v < W.rows(); ++v) {
      const double step = static_cast<double>(W.row(v).cwiseAbs().maxCoeff()) / 126.0;
      slack.push_back(0.51 * step * h.cast<double>().cwiseAbs().sum() + 1e-3);
    }
    Workspace workspace;
    Query query;
    query.h = h.data();
    const Candidates found = head->screener().screen(query, workspace);
    ASSERT_EQ(found.ids.size(), 40U);
    std::vector<bool> chosen(500, false);
    double least = 1e30;
    for (const TokenId id : found.ids) {
      chosen[static_cast<std::size_t>(id)] = true;
      least =
          std::min(least, exact.logits[static_cast<std::size_t>(id)] + slack[static_cast<std::size_t>(id)]);
    }
    for (std::size_t v = 0; v < 500; ++v) {
      if (!chosen[v]) {
        EXPECT_LE(exact.logits[v] - slack[v], least + 2.0 * slack[v]) << "token " << v;
      }
    }
    const TopK answer = head->query(h, {.k = 5});
    EXPECT_EQ(answer.normalizer, Normalizer::low_rank);
    EXPECT_NEAR(answer.log_z, exact.log_z, *std::max_element(slack.begin(), slack.end()));
  }
}

TEST(Quantized, FindsTheTopTokens) {
  const SoftmaxLayer layer = random_layer(3000, 64, 1);
  const auto head = Quantized::build(layer);
  const auto exact = Exact::make(layer);
  for (unsigned i = 0; i < 50; ++i) {
    const Eigen::VectorXf h = random_vector(64, 20 + i);
    EXPECT_EQ(head->query(h, {.k = 5}).ids, exact->query(h, {.k = 5}).ids);
    EXPECT_EQ(head->query(h, {.k = 30}).work.candidates, 60U);
  }
}

TEST(Quantized, FindsTheBestOfTheWidestLayers) {
  for (const Eigen::Index dim : {5120, 16384}) {
    const SoftmaxLayer layer = random_layer(300, dim, 1);
    const auto head = Quantized::build(layer);
    const auto exact = Exact::make(layer);
    for (unsigned i = 0; i < 10; ++i) {
      const Eigen::VectorXf h = random_vector(dim, 20 + i);
      EXPECT_EQ(head->query(h, {.k = 5}).ids, exact->query(h, {.k = 5}).ids) << dim;
    }
  }
}

TEST(Quantized, RefusesUnusableOptions) {
  EXPECT_THROW(Quantized::build(random_layer(10, 3, 1), {.refine_width = 0}), Error);
  EXPECT_THROW(Quantized::build(random_layer(2, 16385, 1)), Error);
}

}  // namespace
}  // namespace topksoftmax
