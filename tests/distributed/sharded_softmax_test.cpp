// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/distributed/sharded_softmax.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "distributed/ranks.hpp"
#include "support/layers.hpp"
#include "support/reference.hpp"
#include "support/same_answers.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/l2s/build.hpp"
#include "topksoftmax/quantized/build.hpp"
#include "topksoftmax/rows/q8_0_copy.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::expect_same;
using testing::random_layer;
using testing::random_matrix;
using testing::Reference;
using testing::sharded;
using testing::Spread;
using testing::spreads;

constexpr Eigen::Index kDim = 24;

struct Asked {
  std::string name;
  QueryOptions options;
};

/// Masks and biases for a vocabulary, and queries with them.
class Questions {
 public:
  explicit Questions(std::size_t vocab) : few_(vocab), most_(vocab), late_(vocab), none_(vocab) {
    for (std::size_t id = 0; id < vocab; ++id) {
      if (id % 97 == 5) few_.allow(static_cast<TokenId>(id));
      if (id % 3 != 0) most_.allow(static_cast<TokenId>(id));
      if (id >= vocab - vocab / 2) late_.allow(static_cast<TokenId>(id));
      if (id % 41 == 0) biases_.push_back({static_cast<TokenId>(id), id % 2 == 0 ? 4.0F : -2.5F});
    }
  }

  std::vector<Asked> all() const {
    return {{"one", {.k = 1}},
            {"five", {.k = 5}},
            {"many", {.k = 150}},
            {"all", {.k = 1000000}},
            {"ids alone", {.k = 5, .probabilities = false}},
            {"biased", {.k = 5, .logit_bias = biases_}},
            {"few allowed", {.k = 5, .allowed = few_}},
            {"most allowed, biased", {.k = 5, .allowed = most_, .logit_bias = biases_}},
            {"the second half", {.k = 5, .allowed = late_}},
            {"none allowed", {.k = 5, .allowed = none_}},
            {"exact log Z", {.k = 5, .log_z_tolerance = 0.0}},
            {"exact log Z, biased", {.k = 5, .logit_bias = biases_, .log_z_tolerance = 1e-6}}};
  }

 private:
  TokenMask few_, most_, late_, none_;
  std::vector<TokenBias> biases_;
};

/// Both answer all questions alike, bit for bit, one context at a time and several.
void expect_same_answers(const TopKSoftmax& head, const TopKSoftmax& whole, const RowMajorMatrix& contexts) {
  ASSERT_EQ(head.vocab(), whole.vocab());
  const Questions questions(whole.vocab());
  for (const Asked& asked : questions.all()) {
    SCOPED_TRACE(asked.name);
    const std::vector<TopK> batch = head.query_batch(contexts, asked.options);
    for (Eigen::Index i = 0; i < contexts.rows(); ++i) {
      const Eigen::VectorXf h = contexts.row(i);
      const TopK expected = whole.query(h, asked.options);
      expect_same(head.query(h, asked.options), expected);
      expect_same(batch[static_cast<std::size_t>(i)], expected);
    }
  }

  std::vector<QueryOptions> options;
  for (const Asked& asked : questions.all()) options.push_back(asked.options);
  RowMajorMatrix H(static_cast<Eigen::Index>(options.size()), contexts.cols());
  for (Eigen::Index i = 0; i < H.rows(); ++i) H.row(i) = contexts.row(i % contexts.rows());
  const std::vector<TopK> each = head.query_each(Contexts::of(H), options);
  for (Eigen::Index i = 0; i < H.rows(); ++i) {
    const auto q = static_cast<std::size_t>(i);
    expect_same(each[q], whole.query(H.row(i), options[q]));
  }
}

TEST(ShardedSoftmax, OfExhaustiveBackendsAnswersAsOneProcessBitForBit) {
  for (const Spread& spread : spreads()) {
    for (const Eigen::Index vocab : {1, 2, 3, 63, 64, 65, 130, 1003}) {
      SCOPED_TRACE(spread.name + ", V = " + std::to_string(vocab));
      const SoftmaxLayer layer = random_layer(vocab, kDim, static_cast<unsigned>(vocab));
      const RowMajorMatrix contexts = random_matrix(3, kDim, 5, 2.0F);
      const auto whole = Fused::make(layer);
      expect_same_answers(*sharded(layer, spread, &Fused::make), *whole, contexts);
      expect_same_answers(*sharded(layer, spread, &Exact::make), *whole, contexts);
    }
  }
}

TEST(ShardedSoftmax, AnswersForEveryTypeOfWeights) {
  const SoftmaxLayer floats = random_layer(700, 64, 3);
  const RowMajorMatrix W = floats.weights();
  std::vector<Eigen::bfloat16> shorts;
  for (Eigen::Index i = 0; i < W.size(); ++i) shorts.emplace_back(W.data()[i]);
  std::vector<std::int8_t> bytes;
  std::vector<float> scales;
  for (Eigen::Index i = 0; i < W.size(); ++i) bytes.push_back(static_cast<std::int8_t>(W.data()[i] * 50.0F));
  for (Eigen::Index i = 0; i < W.rows(); ++i) scales.push_back(0.01F + 0.0001F * static_cast<float>(i));
  kernels::Rows rows{
      .data = shorts.data(), .count = 700, .dim = 64, .stride = 64, .type = WeightType::bfloat16};
  const SoftmaxLayer of_shorts = SoftmaxLayer::borrow(rows, 0);
  rows.data = bytes.data();
  rows.scales = scales.data();
  rows.type = WeightType::int8;
  const SoftmaxLayer of_bytes = SoftmaxLayer::borrow(rows, 0);
  const RowMajorMatrix contexts = random_matrix(3, 64, 5);
  for (const SoftmaxLayer& layer :
       {floats, of_shorts, of_bytes, q8_0_copy(floats), floats.with({.scale = 2.0F, .soft_cap = 3.0F})}) {
    for (const Spread& spread : spreads()) {
      SCOPED_TRACE(spread.name + ", " + std::string(weight_type_name(layer.weight_type())));
      expect_same_answers(*sharded(layer, spread, &Fused::make), *Fused::make(layer), contexts);
    }
  }
}

TEST(ShardedSoftmax, TiesGoToTheLowerIdWhicheverRankHasIt) {
  RowMajorMatrix W = RowMajorMatrix::Ones(90, 6);
  W.row(50) *= 2.0F;
  const SoftmaxLayer layer = SoftmaxLayer::borrow(W);
  const Eigen::VectorXf h = Eigen::VectorXf::Ones(6);
  for (const Spread& spread : spreads()) {
    const auto head = sharded(layer, spread, &Fused::make);
    EXPECT_EQ(head->query(h, {.k = 40}).ids, Fused::make(layer)->query(h, {.k = 40}).ids) << spread.name;
    EXPECT_EQ(head->query(h, {.k = 3}).ids, (std::vector<TokenId>{50, 0, 1})) << spread.name;
  }
}

TEST(ShardedSoftmax, LogitsOutsideOfFloatsRangeAddUpAsInOneProcess) {
  for (const float scale : {1e-30F, 60.0F, 1e8F, 1e25F, 3e38F}) {
    const SoftmaxLayer layer = random_layer(300, 4, 8);
    const Eigen::VectorXf h = testing::random_vector(4, 2).normalized() * scale;
    for (const Spread& spread : spreads()) {
      expect_same(sharded(layer, spread, &Fused::make)->query(h, {.k = 9}),
                  Fused::make(layer)->query(h, {.k = 9}));
    }
  }
}

/// What certified heads over slices promise.
void expect_certified_answers(const TopKSoftmax& head, const SoftmaxLayer& layer,
                              const RowMajorMatrix& contexts) {
  const auto whole = Fused::make(layer);
  const Questions questions(layer.vocab());
  EXPECT_TRUE(head.certifies());
  for (const Asked& asked : questions.all()) {
    SCOPED_TRACE(asked.name);
    const std::vector<TopK> batch = head.query_batch(contexts, asked.options);
    for (Eigen::Index i = 0; i < contexts.rows(); ++i) {
      const Eigen::VectorXf h = contexts.row(i);
      const TopK expected = whole->query(h, asked.options);
      const TopK answer = head.query(h, asked.options);
      expect_same(batch[static_cast<std::size_t>(i)], answer);
      EXPECT_TRUE(answer.certified);
      EXPECT_EQ(answer.ids, expected.ids);
      EXPECT_EQ(answer.logits, expected.logits);
      if (!asked.options.probabilities) {
        EXPECT_EQ(answer.normalizer, Normalizer::none);
        continue;
      }
      EXPECT_LE(answer.log_z_low, expected.log_z + 1e-5);
      EXPECT_GE(answer.log_z_high, expected.log_z - 1e-5);
      EXPECT_LE(answer.log_z_low, answer.log_z);
      EXPECT_GE(answer.log_z_high, answer.log_z);
      if (asked.options.log_z_tolerance < 1e-5) expect_same(answer, expected);
    }
  }
}

TEST(ShardedSoftmax, OfCertifiedBackendsAnswersCertifiedAndExact) {
  for (const Eigen::Index vocab : {1, 5, 700, 3000}) {
    const SoftmaxLayer layer = random_layer(vocab, kDim, 4);
    const RowMajorMatrix train = clustered_contexts(300, kDim, 12, 2);
    const RowMajorMatrix test = clustered_contexts(40, kDim, 12, 2).bottomRows(4);
    for (const Spread& spread : spreads()) {
      SCOPED_TRACE(spread.name + ", V = " + std::to_string(vocab));
      const auto head = sharded(
          layer, spread, [&](SoftmaxLayer slice) { return Certified::build(std::move(slice), train); });
      expect_certified_answers(*head, layer, test);
    }
  }
}

TEST(ShardedSoftmax, IntervalsAreAsNarrowAsIsAskedFor) {
  const SoftmaxLayer layer = random_layer(4000, kDim, 4);
  const RowMajorMatrix train = clustered_contexts(300, kDim, 12, 2);
  const auto head = sharded(layer, spreads()[0],
                            [&](SoftmaxLayer slice) { return Certified::build(std::move(slice), train); });
  const auto whole = Fused::make(layer);
  for (Eigen::Index i = 0; i < 10; ++i) {
    const Eigen::VectorXf h = train.row(i * 7);
    for (const double tolerance : {1.0, 0.1, 1e-3, 2e-5, 1.3e-5}) {
      const TopK answer = head->query(h, {.k = 5, .log_z_tolerance = tolerance});
      EXPECT_LE(answer.log_z_high - answer.log_z_low, tolerance);
      const double log_z = Reference(layer, h).log_z;
      EXPECT_LE(answer.log_z_low, log_z + 6e-6);
      EXPECT_GE(answer.log_z_high, log_z - 6e-6);
    }
  }
}

/// Knows log Z as well as it is asked to, and no better.
class AsWellAsAsked final : public TopKSoftmax {
 public:
  explicit AsWellAsAsked(const SoftmaxLayer& layer) : TopKSoftmax(layer), fused_(layer) {}
  std::string_view name() const override { return "as-well-as-asked"; }
  std::size_t index_bytes() const override { return 0; }

 private:
  void do_query(const Query& query, Workspace& workspace, TopK& answer) const override {
    ask(fused_, query, workspace, answer);
    answer.normalizer = Normalizer::interval;
    answer.log_z_low = answer.log_z - 0.5 * query.log_z_tolerance;
    answer.log_z_high = answer.log_z_low + query.log_z_tolerance;
    while (answer.log_z_high - answer.log_z_low > query.log_z_tolerance)
      answer.log_z_high = std::nextafter(answer.log_z_high, 0.0);
  }

  Fused fused_;
};

TEST(ShardedSoftmax, IntervalsAddedUpAreNoWiderForTheirRounding) {
  const SoftmaxLayer layer = random_layer(600, kDim, 4);
  const RowMajorMatrix contexts = clustered_contexts(100, kDim, 12, 2);
  const auto head = sharded(
      layer, spreads()[0], [&](const SoftmaxLayer& slice) { return std::make_unique<AsWellAsAsked>(slice); });
  for (Eigen::Index i = 0; i < contexts.rows(); ++i) {
    for (const double tolerance : {1.0, 0.3, 1e-3}) {
      const TopK answer = head->query(contexts.row(i), {.k = 5, .log_z_tolerance = tolerance});
      ASSERT_EQ(answer.normalizer, Normalizer::interval);
      EXPECT_LE(answer.log_z_high - answer.log_z_low, tolerance);
      EXPECT_GE(answer.log_z_high - answer.log_z_low, 0.99 * tolerance);
    }
  }
}

TEST(ShardedSoftmax, OfApproximateBackendsHasTheLogitsOfOneProcess) {
  const SoftmaxLayer layer = random_layer(900, kDim, 4);
  const RowMajorMatrix train = clustered_contexts(400, kDim, 12, 2);
  using Make = std::function<std::unique_ptr<TopKSoftmax>(SoftmaxLayer)>;
  const Make makes[] = {[](SoftmaxLayer slice) { return Quantized::build(std::move(slice)); },
                        [&](SoftmaxLayer slice) {
                          return L2S::train(std::move(slice), train,
                                            {.clusters = 4, .budget = 40, .rounds = 1});
                        }};
  for (const Make& make : makes) {
    for (const Spread& spread : spreads()) {
      const auto head = sharded(layer, spread, make);
      for (Eigen::Index i = 0; i < 10; ++i) {
        const Eigen::VectorXf h = train.row(i * 7);
        const Reference reference(layer, h);
        std::vector<float> logits(7);
        Workspace workspace;
        const TopK answer = head->query(h, {.k = 7});
        ASSERT_EQ(answer.size(), 7U);
        Fused::make(layer)->logits_of(std::span(h.data(), kDim), answer.ids, {}, workspace, logits);
        EXPECT_EQ(answer.logits, logits);
        EXPECT_FALSE(answer.certified);
        EXPECT_TRUE(std::isfinite(answer.log_z));
        EXPECT_EQ(answer.log_z, answer.log_z_low);
        EXPECT_NEAR(answer.log_z, reference.log_z, 1.0);
        for (std::size_t n = 1; n < answer.size(); ++n) {
          EXPECT_TRUE(
              ranks_before({answer.logits[n - 1], answer.ids[n - 1]}, {answer.logits[n], answer.ids[n]}));
        }
      }
    }
  }
}

TEST(ShardedSoftmax, HasTheLogitsOfAllTokensOnEveryRank) {
  const SoftmaxLayer layer = random_layer(777, kDim, 4);
  const RowMajorMatrix contexts = random_matrix(5, kDim, 5);
  const auto whole = Fused::make(layer);
  TokenMask mask(777);
  for (TokenId id = 0; id < 777; id += 5) mask.allow(id);
  const std::vector<TokenBias> bias = {{5, 1.0F}, {400, 2.0F}, {776, 3.0F}};
  const std::vector<TokenId> ids = {776, 0, 5, 400, 5, 333, 1, 775};
  for (const Spread& spread : spreads()) {
    const auto head = sharded(layer, spread, &Fused::make);
    for (const QueryOptions& options : {QueryOptions{}, QueryOptions{.allowed = mask, .logit_bias = bias}}) {
      Workspace ours;
      Workspace theirs;
      const auto found = head->logits_batch(contexts, options, ours);
      const auto expected = whole->logits_batch(contexts, options, theirs);
      ASSERT_EQ(found.size(), expected.size());
      EXPECT_TRUE(std::equal(found.begin(), found.end(), expected.begin())) << spread.name;
      for (const std::size_t count : {std::size_t{0}, ids.size()}) {
        std::vector<float> some(count);
        std::vector<float> expected_some(count);
        const std::span<const float> h(contexts.data(), kDim);
        head->logits_of(h, std::span(ids).first(count), options, ours, some);
        whole->logits_of(h, std::span(ids).first(count), options, theirs, expected_some);
        EXPECT_EQ(some, expected_some) << spread.name;
      }
    }
  }
}

TEST(ShardedSoftmax, TakesOneCollectiveAQuestion) {
  const SoftmaxLayer layer = random_layer(900, kDim, 4);
  const RowMajorMatrix contexts = random_matrix(40, kDim, 5);
  const auto head = sharded(layer, spreads()[0], &Fused::make);
  const Eigen::VectorXf h = contexts.row(0);
  const auto calls = [&](const std::function<void()>& ask) {
    head->forget_collective_work();
    ask();
    return head->collective_work().calls;
  };
  EXPECT_EQ(calls([&] { head->query(h, {.k = 5}); }), 1U);
  EXPECT_EQ(calls([&] { head->query_batch(contexts, {.k = 5}); }), 2U) << "more than the question before";
  EXPECT_EQ(calls([&] { head->query_batch(contexts, {.k = 5}); }), 1U);
  EXPECT_EQ(calls([&] { head->query(h, {.k = 5}); }), 1U);
  EXPECT_EQ(calls([&] { head->query_batch(contexts, {.k = 400}); }), 2U);
  EXPECT_EQ(calls([&] { head->query_batch(contexts, {.k = 400}); }), head->ranks() == 1 ? 2U : 2U)
      << "more than 64 KB";
  EXPECT_EQ(calls([&] { head->query(h, {.k = 5}); }), 1U);
  head->forget_collective_work();
  head->query(h, {.k = 5});
  EXPECT_EQ(head->collective_work().bytes, 65536U * head->ranks() - (65536U - 256U) * head->ranks());
}

TEST(ShardedSoftmax, SharedThresholdsLeaveOutRowsAndNoAnswer) {
  const SoftmaxLayer layer = random_layer(6000, kDim, 4);
  const RowMajorMatrix train = clustered_contexts(300, kDim, 12, 2);
  const auto make = [&](const Spread& spread, bool share) {
    const VocabularySlice slice = spread.slice(layer.vocab());
    return ShardedSoftmax::make(MPI_COMM_WORLD, slice,
                                [&] {
                                  return Certified::build(
                                      slice_of(layer, slice), train,
                                      {.prefix = 4, .width = 8, .boxes = BoundBoxes::never});
                                },
                                {.share_thresholds = share});
  };
  const Questions questions(layer.vocab());
  for (const Spread& spread : spreads()) {
    SCOPED_TRACE(spread.name);
    const auto sharing = make(spread, true);
    const auto alone = make(spread, false);
    std::size_t scored = 0;
    std::size_t scored_alone = 0;
    for (Eigen::Index i = 0; i < 20; ++i) {
      const Eigen::VectorXf h = train.row(i * 13);
      for (Asked asked : questions.all()) {
        asked.options.probabilities = false;
        const TopK answer = sharing->query(h, asked.options);
        expect_same(answer, Fused::make(layer)->query(h, asked.options));
        scored += answer.work.candidates;
        scored_alone += alone->query(h, asked.options).work.candidates;
      }
    }
    EXPECT_LE(scored, scored_alone);
    if (testing::rank_count() > 1 && spread.name == "even") {
      EXPECT_LT(scored, scored_alone);
    }
    const Eigen::VectorXf h = train.row(0);
    sharing->query(h, {.k = 5, .probabilities = false});
    sharing->forget_collective_work();
    sharing->query(h, {.k = 5, .probabilities = false});
    EXPECT_EQ(sharing->collective_work().calls, testing::rank_count() == 1 ? 1U : 2U);
  }
}

TEST(ShardedSoftmax, SaysWhatItIs) {
  const SoftmaxLayer layer = random_layer(10, kDim, 4);
  const auto head = sharded(layer, spreads()[0], &Fused::make);
  EXPECT_EQ(head->name(), "sharded:fused");
  EXPECT_EQ(head->vocab(), 10U);
  EXPECT_EQ(head->rows(), 10U);
  EXPECT_TRUE(head->collective());
  EXPECT_TRUE(head->certifies());
  EXPECT_FALSE(head->exhaustive()) << "its logits are on other ranks";
  ASSERT_EQ(head->ranks(), testing::rank_count());
  EXPECT_EQ(head->slice(), even_slice(10, testing::this_rank(), testing::rank_count()));
  EXPECT_EQ(head->slice(), head->slices()[testing::this_rank()]);
  ASSERT_EQ(head->local() == nullptr, head->slice().empty());
  if (head->local() != nullptr) {
    EXPECT_EQ(head->layer().vocab(), head->slice().size());
  }
  Workspace workspace;
  const Eigen::VectorXf h = Eigen::VectorXf::Ones(kDim);
  EXPECT_FALSE(head->candidates(h.data(), kDim, {}, workspace));
  EXPECT_FALSE(head->sample_log_z(std::span(h.data(), kDim), {}, {}, workspace));
}

}  // namespace
}  // namespace topksoftmax
