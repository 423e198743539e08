// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/svd/svd_softmax.hpp"

#include <gtest/gtest.h>

#include <Eigen/SVD>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "support/layers.hpp"
#include "support/reference.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/svd/build.hpp"

namespace topksoftmax {
namespace {

using testing::random_layer;
using testing::random_vector;
using testing::Reference;

constexpr Eigen::Index kVocab = 400;
constexpr Eigen::Index kDim = 24;

/// Logits from the leading singular directions, in float64, by Eigen's own SVD.
Eigen::VectorXd preview(const SoftmaxLayer& layer, const Eigen::VectorXf& h, Eigen::Index width) {
  const Eigen::MatrixXd W = layer.weights().cast<double>();
  const Eigen::BDCSVD<Eigen::MatrixXd> svd(W, Eigen::ComputeThinU | Eigen::ComputeThinV);
  const Eigen::VectorXd turned = svd.matrixV().leftCols(width).transpose() * h.cast<double>();
  return svd.matrixU().leftCols(width) * svd.singularValues().head(width).asDiagonal() * turned +
         layer.biases().cast<double>();
}

TEST(SvdSoftmax, RefinesTheTokensWithTheBestPreviews) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 1);
  for (const Eigen::Index width : {1, 6, 20}) {
    for (const std::size_t refine : {1U, 7U, 60U, 399U}) {
      const auto head = SvdSoftmax::build(
          layer, {.preview_width = static_cast<std::size_t>(width), .refine_width = refine});
      const Eigen::VectorXf h = random_vector(kDim, 3);
      const Eigen::VectorXd expected = preview(layer, h, width);
      Workspace workspace;
      Query query;
      query.h = h.data();
      const Candidates found = head->screener().screen(query, workspace);
      ASSERT_EQ(found.ids.size(), refine);
      ASSERT_TRUE(std::is_sorted(found.ids.begin(), found.ids.end()));
      double least = expected.maxCoeff();
      for (const TokenId id : found.ids) least = std::min(least, expected[id]);
      EXPECT_NEAR(static_cast<double>((expected.array() >= least - 1e-4).count()),
                  static_cast<double>(refine), 1.0);
    }
  }
}

TEST(SvdSoftmax, LogZKeepsThePreviewsOfTheOthers) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 1);
  const auto head = SvdSoftmax::build(layer, {.preview_width = 6, .refine_width = 30});
  const Eigen::VectorXf h = random_vector(kDim, 4);
  const Eigen::VectorXd previews = preview(layer, h, 6);
  const Reference exact(layer, h);
  std::vector<TokenId> order(kVocab);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return previews[a] > previews[b]; });
  double sum = 0.0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    sum += std::exp(i < 30 ? exact.logits[static_cast<std::size_t>(order[i])] : previews[order[i]]);
  }
  const TopK answer = head->query(h, {.k = 5});
  EXPECT_EQ(answer.normalizer, Normalizer::low_rank);
  EXPECT_NEAR(answer.log_z, std::log(sum), 1e-4);
}

// Rows are turned 4,096 at a time.
TEST(SvdSoftmax, AFullPreviewIsTheSoftmax) {
  for (const Eigen::Index vocab : {Eigen::Index{1}, kVocab, Eigen::Index{8193}}) {
    const SoftmaxLayer layer = random_layer(vocab, kDim, 1);
    const auto head = SvdSoftmax::build(layer, {.preview_width = kDim, .refine_width = 10});
    for (unsigned i = 0; i < 20; ++i) {
      const Eigen::VectorXf h = random_vector(kDim, 10 + i);
      const Reference exact(layer, h);
      const TopK answer = head->query(h, {.k = 3});
      EXPECT_EQ(answer.ids[0],
                std::max_element(exact.logits.begin(), exact.logits.end()) - exact.logits.begin());
      EXPECT_NEAR(answer.log_z, exact.log_z, 1e-4);
    }
  }
}

TEST(SvdSoftmax, RefusesUnusableOptions) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 1);
  EXPECT_THROW(SvdSoftmax::build(layer, {.preview_width = 0}), Error);
  EXPECT_THROW(SvdSoftmax::build(layer, {.preview_width = kDim + 1}), Error);
  EXPECT_THROW(SvdSoftmax::build(layer, {.refine_width = 0}), Error);
}

}  // namespace
}  // namespace topksoftmax
