// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/reaching_rows.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/executors.hpp"
#include "support/layers.hpp"
#include "support/reference.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::random_layer;
using testing::Reference;

// Blocks of 16 rows that are opened in several parts, of which the last is not full.
constexpr Eigen::Index kVocab = 5 * detail::kOpenedAtOnce * 16 + 7;
constexpr Eigen::Index kDim = 48;

class ReachingRows : public ::testing::TestWithParam<BoundBoxes> {
 protected:
  detail::BoundedQuery bounded(const Eigen::VectorXf& h, std::size_t threads = 1) {
    query_.h = h.data();
    workspace_.set_crew({&executor_, threads});
    return detail::bounded(layer_, head_->screener().index(), query_, workspace_);
  }

  /// A threshold that so many tokens reach.
  static float reached_by(const std::vector<double>& logits, std::size_t count) {
    std::vector<double> sorted = logits;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    return static_cast<float>(0.5 * (sorted[count - 1] + sorted[count]));
  }

  /// What was found, out of the workspace.
  struct Found {
    std::vector<TokenId> places;
    std::vector<float> estimates;
    std::vector<float> radii;
    double low;
    double high;

    explicit Found(const detail::ReachingRows& rows)
        : places(rows.places, rows.places + rows.count),
          estimates(rows.estimates, rows.estimates + rows.count),
          radii(rows.radii, rows.radii + rows.count),
          low(rows.rest.low),
          high(rows.rest.high) {}
    bool operator==(const Found&) const = default;
  };

  /// Whether the rows are all that reach the threshold within their own bounds, in their order, and what is
  /// said of the others holds.
  void expect_all_reaching(const detail::BoundedQuery& asked, const Found& found, float threshold,
                           const std::vector<double>& logits) {
    const detail::BoundedRows all = detail::every_row(asked);
    ASSERT_TRUE(std::is_sorted(found.places.begin(), found.places.end(), std::less_equal<>()));
    std::vector<bool> is_found(logits.size());
    const LogitTransform& transform = layer_.transform();
    for (std::size_t i = 0; i < found.places.size(); ++i) {
      const auto place = static_cast<std::size_t>(found.places[i]);
      ASSERT_EQ(found.estimates[i], all.estimates[place]) << "place " << place;
      ASSERT_EQ(found.radii[i], all.radii[place]) << "place " << place;
      const auto bound = static_cast<double>(all.estimates[place] + all.radii[place]);
      ASSERT_GE(transform(bound) + 1e-5, static_cast<double>(threshold));
      is_found[static_cast<std::size_t>(asked.index.token(place))] = true;
    }
    double sum = 0.0;
    for (std::size_t token = 0; token < logits.size(); ++token) {
      if (is_found[token]) continue;
      ASSERT_LT(logits[token], static_cast<double>(threshold)) << "token " << token;
      sum += std::exp(logits[token] - static_cast<double>(threshold));
    }
    EXPECT_LE(found.low, sum * (1.0 + 1e-6));
    EXPECT_GE(found.high, sum * (1.0 - 1e-6));
  }

  void build(const LogitTransform& transform = {}) {
    layer_ = random_layer(kVocab, kDim, 3).with(transform);
    contexts_ = clustered_contexts(300, kDim, 6, 9);
    head_ = Certified::build(layer_, contexts_, {.prefix = 8, .int4_width = 32, .boxes = GetParam()});
    ASSERT_EQ(head_->screener().index().has_boxes(), GetParam() == BoundBoxes::always);
  }

  SoftmaxLayer layer_ = random_layer(40, kDim, 1);
  RowMajorMatrix contexts_;
  std::unique_ptr<Certified> head_;
  Query query_;
  Workspace workspace_;
  testing::ReversedExecutor executor_{4};
};

TEST_P(ReachingRows, AreAllThatDoWithinTheirBounds) {
  for (const LogitTransform& transform :
       {LogitTransform{}, LogitTransform{.scale = 2.0F, .soft_cap = 9.0F}}) {
    build(transform);
    for (Eigen::Index q = 0; q < 10; ++q) {
      const Eigen::VectorXf h = contexts_.row(q);
      const std::vector<double> logits = Reference(layer_, h).logits;
      for (const std::size_t count : {1U, 20U, 2000U}) {
        SCOPED_TRACE(std::to_string(count) + " of context " + std::to_string(q));
        const detail::BoundedQuery asked = bounded(h);
        const float threshold = reached_by(logits, count);
        const Found found(detail::rows_reaching(asked, threshold));
        EXPECT_GE(found.places.size(), count);
        expect_all_reaching(asked, found, threshold, logits);
      }
    }
  }
}

TEST_P(ReachingRows, AreTheSameBitsOnEveryCrew) {
  build();
  for (Eigen::Index q = 0; q < 5; ++q) {
    const Eigen::VectorXf h = contexts_.row(q);
    const float threshold = reached_by(Reference(layer_, h).logits, 500);
    const Found alone(detail::rows_reaching(bounded(h), threshold));
    for (const std::size_t threads : {2U, 3U, 4U}) {
      EXPECT_EQ(Found(detail::rows_reaching(bounded(h, threads), threshold)), alone) << threads;
    }
  }
}

TEST_P(ReachingRows, AreFewerAboveAHigherThreshold) {
  build();
  for (Eigen::Index q = 0; q < 10; ++q) {
    const Eigen::VectorXf h = contexts_.row(q);
    const std::vector<double> logits = Reference(layer_, h).logits;
    const detail::BoundedQuery asked = bounded(h);
    detail::ReachingRows rows = detail::rows_reaching(asked, reached_by(logits, 800));
    const std::size_t before = rows.count;
    const float threshold = reached_by(logits, 10);
    detail::keep_reaching(asked, threshold, rows);
    EXPECT_EQ(rows.threshold, threshold);
    EXPECT_LT(rows.count, before);
    expect_all_reaching(asked, Found(rows), threshold, logits);
  }
}

TEST_P(ReachingRows, SumNothingWhereNoProbabilitiesAreAskedFor) {
  build();
  const Eigen::VectorXf h = contexts_.row(0);
  const float threshold = reached_by(Reference(layer_, h).logits, 20);
  const Found with_sums(detail::rows_reaching(bounded(h), threshold));
  query_.probabilities = false;
  const Found without(detail::rows_reaching(bounded(h), threshold));
  EXPECT_EQ(without.places, with_sums.places);
  EXPECT_GT(with_sums.high, 0.0);
  EXPECT_EQ(without.high, 0.0);
}

TEST_P(ReachingRows, HaveNoneThatIsForbiddenOrBiased) {
  build();
  std::vector<std::uint64_t> words((kVocab + 63) / 64);
  for (std::size_t id = 0; id < kVocab; ++id) {
    if (id % 3 != 0) words[id / 64] |= std::uint64_t{1} << (id % 64);
  }
  std::vector<TokenBias> biases;
  for (TokenId id = 0; id < kVocab; id += 5) biases.push_back({id, 30.0F});
  const auto may_be_found = [](TokenId id) { return id % 3 != 0 && id % 5 != 0; };
  query_.edits = {.allowed = AllowedTokens(words), .bias = biases.data(), .bias_count = biases.size()};
  for (Eigen::Index q = 0; q < 5; ++q) {
    const Eigen::VectorXf h = contexts_.row(q);
    const std::vector<double> logits = Reference(layer_, h).logits;
    const float threshold = reached_by(logits, 1000);
    const detail::BoundedQuery asked = bounded(h);
    const detail::ReachingRows rows = detail::rows_reaching(asked, threshold);
    std::vector<bool> is_found(kVocab);
    for (std::size_t i = 0; i < rows.count; ++i) {
      const TokenId id = asked.index.token(rows.place(i));
      ASSERT_TRUE(may_be_found(id)) << "token " << id;
      is_found[static_cast<std::size_t>(id)] = true;
    }
    for (TokenId id = 0; id < kVocab; ++id) {
      const auto at = static_cast<std::size_t>(id);
      if (!may_be_found(id) || logits[at] < static_cast<double>(threshold)) continue;
      ASSERT_TRUE(is_found[at]) << "token " << id;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Boxes, ReachingRows, ::testing::Values(BoundBoxes::never, BoundBoxes::always),
                         [](const auto& boxes) {
                           return boxes.param == BoundBoxes::always ? "Opened" : "None";
                         });

}  // namespace
}  // namespace topksoftmax
