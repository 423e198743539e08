// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/sampling.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "conformance/backends.hpp"
#include "decoding/draws_on_threads.hpp"
#include "decoding/expected_distribution.hpp"
#include "decoding/sampling_cases.hpp"
#include "support/errors.hpp"
#include "support/layers.hpp"
#include "support/reference.hpp"
#include "support/statistics.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/certified/certify.hpp"
#include "topksoftmax/decoding/leader.hpp"
#include "topksoftmax/decoding/staying.hpp"
#include "topksoftmax/decoding/token_gumbels.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/fused.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::expected_distribution;
using testing::kSamplingCases;
using testing::random_layer;
using testing::Reference;
using testing::refusal;

struct Drawn {
  SoftmaxLayer layer = random_layer(300, 24, 3);
  RowMajorMatrix contexts = 0.5F * clustered_contexts(300, 24, 6, 9);
};

TEST(Sampling, MatchesTheDistributionForEveryOption) {
  const Drawn world;
  const Eigen::VectorXf h = world.contexts.row(0);
  const Reference reference(world.layer, h);
  const auto head = Certified::build(world.layer, world.contexts, {.width = 16});
  for (const SamplingOptions& options : kSamplingCases) {
    const std::vector<double> expected = expected_distribution(reference.logits, options);
    Sampler sampler(options);
    RandomStream random(11);
    std::vector<std::size_t> counts(expected.size());
    for (int i = 0; i < 10000; ++i) {
      const SampledToken token = sampler.draw(*head, h, random);
      const auto id = static_cast<std::size_t>(token.id);
      ++counts[id];
      ASSERT_GT(expected[id], 0.0);
      ASSERT_NEAR(token.logit, reference.logits[id], 1e-4);
      if (options.xtc_probability > 0.0 && options.xtc_probability < 1.0) continue;
      ASSERT_LE(token.log_prob_low - 1e-4, std::log(expected[id]));
      ASSERT_GE(token.log_prob_high + 1e-4, std::log(expected[id]));
    }
    EXPECT_LT(testing::chi_square_deviations(counts, expected), 4.0) << &options - kSamplingCases;
  }
}

TEST(Sampling, MatchesTheDistributionUnderASoftCap) {
  const Drawn world;
  const Eigen::VectorXf h = world.contexts.row(0);
  const SoftmaxLayer layer = world.layer.with({.scale = 1.5F, .soft_cap = 6.0F});
  const Reference reference(layer, h);
  const auto head = Certified::build(layer, world.contexts, {.width = 16});
  const SamplingOptions some[] = {
      {}, {.temperature = 0.8, .top_p = 0.9}, {.top_k = 10}, {.min_p = 0.05}, {.typical_p = 0.5}};
  for (const SamplingOptions& options : some) {
    const std::vector<double> expected = expected_distribution(reference.logits, options);
    Sampler sampler(options);
    RandomStream random(11);
    std::vector<std::size_t> counts(expected.size());
    for (int i = 0; i < 10000; ++i) ++counts[static_cast<std::size_t>(sampler.draw(*head, h, random).id)];
    EXPECT_LT(testing::chi_square_deviations(counts, expected), 4.0) << &options - some;
  }
}

/// A layer of one dimension, which has these logits for the context 1.
SoftmaxLayer layer_of(const std::vector<float>& logits) {
  return SoftmaxLayer::own(Eigen::Map<const RowMajorMatrix>(logits.data(), std::ssize(logits), 1));
}

/// How many of so many draws give another token over Certified than over Fused.
std::size_t draws_apart(const std::vector<float>& logits, const SamplingOptions& options, int draws) {
  const SoftmaxLayer layer = layer_of(logits);
  const auto certified = Certified::build(layer, RowMajorMatrix(0, 1));
  const Fused fused(layer);
  const Eigen::VectorXf h = Eigen::VectorXf::Ones(1);
  Sampler one(options);
  Sampler other(options);
  RandomStream first(5);
  RandomStream second(5);
  std::size_t apart = 0;
  for (int n = 0; n < draws; ++n) {
    apart += one.draw(*certified, h, first).id != other.draw(fused, h, second).id ? 1U : 0U;
  }
  return apart;
}

// The best token is not typical: those that stay are 3 nats below, and at these temperatures no Gumbel counts
// beside that.
TEST(Sampling, TinyTemperaturesLoseNoGumbelsOfTokensThatStay) {
  std::vector<float> logits(65, 0.0F);
  logits[64] = 3.0F;
  for (const double temperature : {1e-14, 1e-20, 1e-30}) {
    const SamplingOptions options = {
        .temperature = temperature, .top_k = 30, .typical_p = 0.5, .order = SamplingOrder::llama_cpp};
    EXPECT_EQ(draws_apart(logits, options, 300), 0U) << temperature;
  }
}

TEST(Sampling, ANucleusMayEndBetweenEqualTokens) {
  std::vector<float> logits(14, 0.0F);
  std::fill(logits.begin() + 10, logits.end(), -30.0F);
  for (const double top_p : {0.1, 0.5, 0.9}) {
    EXPECT_EQ(draws_apart(logits, {.top_k = 15, .top_p = top_p}, 300), 0U) << top_p;
  }
}

// No double holds 1e17 + log 1000, so that a proven log Z says nothing of the others.
TEST(Sampling, LogitsMayBeTooLargeForTheirLogZ) {
  const std::vector<float> logits(1000, 1e17F);
  for (const SamplingOptions& options : {SamplingOptions{.top_p = 0.9}, {.min_p = 1e-10}}) {
    EXPECT_EQ(draws_apart(logits, options, 50), 0U);
  }
}

// Nor does a sampled one.
TEST(Sampling, LogitsMayBeTooLargeForTheirSampledLogZ) {
  std::vector<float> logits(4000, 0.0F);
  std::fill(logits.begin(), logits.begin() + 80, 1e17F);
  EXPECT_EQ(draws_apart(logits, {.top_p = 0.9, .min_p = 0.02, .log_z_error = 0.01}, 100), 0U);
}

TEST(Sampling, EveryBackendGivesTheSameToken) {
  const Drawn world;
  for (const testing::Backend& backend : testing::all_backends()) {
    const auto head = backend.make(world.layer, world.contexts);
    const Fused fused(world.layer);
    for (const SamplingOptions& options : kSamplingCases) {
      Sampler ours(options);
      Sampler theirs(options);
      RandomStream random(5);
      RandomStream same(5);
      for (Eigen::Index q = 0; q < 30; ++q) {
        const Eigen::VectorXf h = world.contexts.row(q);
        const QueryOptions query = {.probabilities = q % 2 == 0};
        ASSERT_EQ(ours.draw(*head, h, random, query).id, theirs.draw(fused, h, same).id) << backend.name;
      }
    }
  }
}

TEST(Sampling, ThreadsChangeNoDraw) {
  const testing::SharedWork work;
  for (const auto& head : work.heads()) {
    testing::expect_same_draws_on_threads<Sampler>(*head, work, kSamplingCases, 100);
  }
}

TEST(Sampling, TopKAndMinPNeedNoFullScanOfAProvenHead) {
  const Drawn world;
  const auto head = Certified::build(world.layer, world.contexts, {.width = 16});
  for (const SamplingOptions& options :
       {SamplingOptions{.top_k = 10}, SamplingOptions{.temperature = 0.7, .min_p = 0.2},
        SamplingOptions{.top_k = 10, .typical_p = 0.5, .top_n_sigma = 1.0, .xtc_probability = 0.5}}) {
    Sampler sampler(options);
    RandomStream random(5);
    for (Eigen::Index q = 0; q < 100; ++q) sampler.draw(*head, world.contexts.row(q).transpose(), random);
    EXPECT_EQ(sampler.full_scans(), 0U);
  }
}

// Its answers count the candidates of what it wraps and those that it scores.
TEST(Sampling, CountsTheScansOfWhatCertifyWraps) {
  const Drawn world;
  const auto head = Certify::wrap(Exact::make(world.layer), world.contexts);
  Sampler sampler({.top_k = 8});
  RandomStream random(5);
  for (Eigen::Index q = 0; q < 20; ++q) sampler.draw(*head, world.contexts.row(q).transpose(), random);
  EXPECT_EQ(sampler.full_scans(), 20U);
}

// Of distributions that leave few tokens.
TEST(Sampling, TopNSigmaAndWhatFollowsACutNeedFewFullScansOfAProvenHead) {
  const Drawn world;
  const auto head = Certified::build(world.layer, world.contexts, {.width = 16});
  for (const SamplingOptions& options :
       {SamplingOptions{.top_n_sigma = 1.0}, SamplingOptions{.min_p = 0.2, .typical_p = 0.5},
        SamplingOptions{.top_k = 40,
        .top_p = 0.9,
        .typical_p = 0.8,
        .top_n_sigma = 1.0,
        .order = SamplingOrder::llama_cpp}}) {
    Sampler sampler(options);
    RandomStream random(5);
    for (Eigen::Index q = 0; q < 100; ++q)
      sampler.draw(*head, 4.0F * world.contexts.row(q).transpose(), random);
    EXPECT_LT(sampler.full_scans(), 15U);
  }
}

// Few tokens stay and are listed, so that what they weigh is known: but for those that are so near to the
// edge of n deviations that bounds do not tell.
TEST(Sampling, ProbabilitiesOfFewTokensAboveALogitAreNarrow) {
  const Drawn world;
  const auto head = Certified::build(world.layer, world.contexts, {.width = 16});
  struct Case {
    SamplingOptions options;
    double width;
  };
  for (const auto& [options, width] :
       {Case{{.temperature = 0.7, .min_p = 0.05}, 1e-9}, Case{{.top_n_sigma = 0.8}, 0.05}}) {
    Sampler sampler(options);
    RandomStream random(5);
    for (Eigen::Index q = 0; q < 100; ++q) {
      const Eigen::VectorXf h = 4.0F * world.contexts.row(q);
      const std::vector<double> p = expected_distribution(Reference(world.layer, h).logits, options);
      const SampledToken token = sampler.draw(*head, h, random);
      EXPECT_NEAR(token.log_prob, std::log(p[static_cast<std::size_t>(token.id)]), width + 1e-4);
      EXPECT_LE(token.log_prob_high - token.log_prob_low, width);
    }
  }
}

struct Large {
  SoftmaxLayer layer = random_layer(3000, 24, 3);
  RowMajorMatrix contexts = 0.5F * clustered_contexts(300, 24, 6, 9);
  std::unique_ptr<Certified> head = Certified::build(layer, contexts, {.width = 16});
};

TEST(Sampling, TheWholeDistributionNeedsFewFullScansOfAProvenHead) {
  const Large world;
  Sampler sampler;
  RandomStream random(5);
  for (Eigen::Index q = 0; q < 200; ++q)
    sampler.draw(*world.head, world.contexts.row(q).transpose(), random, {.probabilities = false});
  EXPECT_LT(sampler.full_scans(), 20U);
  EXPECT_GT(sampler.trials(), 0U);
  EXPECT_LT(sampler.trials(), 200U * 3000U / 16U);
}

TEST(Sampling, ANucleusByASampledLogZNeedsFewFullScans) {
  const Large world;
  for (const double temperature : {1.0, 0.8}) {
    const SamplingOptions exact = {.temperature = temperature, .top_p = 0.7};
    SamplingOptions near = exact;
    near.log_z_error = 0.05;
    Sampler ours(near);
    Sampler theirs(exact);
    RandomStream random(5);
    RandomStream same(5);
    std::size_t different = 0;
    for (Eigen::Index q = 0; q < 200; ++q) {
      const Eigen::VectorXf h = 2.0F * world.contexts.row(q);
      different += ours.draw(*world.head, h, random).id != theirs.draw(*world.head, h, same).id ? 1U : 0U;
    }
    EXPECT_LT(ours.full_scans(), theirs.full_scans()) << theirs.full_scans();
    EXPECT_LT(different, 10U) << "tokens at the edge of the nucleus";
  }
}

// XTC leaves the best token out, beside which a sample's error is far more than all others weigh.
TEST(Sampling, ASampledLogZIsNoBoundOfTokensFarBelowTheBest) {
  const Large world;
  const SamplingOptions options = {.temperature = 0.02,
                                   .xtc_probability = 1.0,
                                   .xtc_threshold = 0.03,
                                   .order = SamplingOrder::llama_cpp,
                                   .log_z_error = 0.01};
  Sampler ours(options);
  Sampler theirs(options);
  RandomStream random(5);
  RandomStream same(5);
  const Fused fused(world.layer);
  for (int i = 0; i < 300; ++i) {
    const Eigen::VectorXf h = 2.0F * world.contexts.row(i % world.contexts.rows()).transpose();
    const SampledToken token = ours.draw(*world.head, h, random);
    const SampledToken expected = theirs.draw(fused, h, same);
    ASSERT_EQ(token.id, expected.id) << i;
    EXPECT_NEAR(token.log_prob_low, expected.log_prob, 1e-3) << i;
    EXPECT_NEAR(token.log_prob_high, expected.log_prob, 1e-3) << i;
  }
}

/// Certified without what it knows of samples and of bounds, as ShardedSoftmax has none.
class OnlyAnswers final : public TopKSoftmax {
 public:
  explicit OnlyAnswers(const Certified& head) : TopKSoftmax(head.layer()), head_(&head) {}

  std::string_view name() const override { return "only answers"; }
  std::size_t index_bytes() const override { return 0; }
  bool certifies() const override { return true; }

 private:
  void do_query(const Query& query, Workspace& workspace, TopK& answer) const override {
    head_->query(
        {query.h, layer().dim()},
        {.k = query.k, .probabilities = query.probabilities, .log_z_tolerance = query.log_z_tolerance},
        workspace, answer);
  }

  const Certified* head_;
};

TEST(Sampling, AHeadThatCannotSampleLogZBoundsProbabilitiesByItsAnswers) {
  const Large world;
  const OnlyAnswers head(*world.head);
  for (SamplingOptions options : {SamplingOptions{.top_p = 0.7, .min_p = 1e-4},
                                  {.top_p = 0.7, .xtc_probability = 0.5, .xtc_threshold = 0.1}}) {
    std::array<std::size_t, 2> scans{};
    for (const bool sampled : {false, true}) {
      options.log_z_error = sampled ? 0.01 : 0.0;
      Sampler sampler(options);
      RandomStream random(5);
      for (int i = 0; i < 200; ++i) {
        const Eigen::VectorXf h = world.contexts.row(i % world.contexts.rows());
        const SampledToken token = sampler.draw(head, h, random);
        ASSERT_TRUE(std::isfinite(token.log_prob_low)) << i;
        ASSERT_LE(token.log_prob_low, token.log_prob_high) << i;
      }
      scans[sampled ? 1 : 0] = sampler.full_scans();
    }
    EXPECT_EQ(scans[0], scans[1]);
  }
}

// Two tokens weigh the same within what a scan may round, so that no longer answer decides.
TEST(Sampling, AnAnswerOfAllAllowedTokensIsNotAskedForAgain) {
  constexpr Eigen::Index kFew = 66;
  RowMajorMatrix W = testing::random_matrix(kFew, 3, 3, 0.01F);
  Eigen::VectorXf b = Eigen::VectorXf::Zero(kFew);
  for (const Eigen::Index best : {3, 50}) {
    W.row(best).setZero();
    b[best] = 50.0F;
  }
  const SoftmaxLayer layer = SoftmaxLayer::own(W, b);
  const auto head = Certified::build(layer, testing::random_matrix(50, 3, 4));
  TokenMask mask = TokenMask::all(kFew);
  for (const TokenId forbidden : {9, 11}) mask.forbid(forbidden);
  const Eigen::VectorXf h = testing::random_matrix(1, 3, 5).row(0);
  for (const std::size_t top_k : {std::size_t{1000}, SIZE_MAX}) {
    Sampler sampler({.top_k = top_k,
                     .top_n_sigma = 1.0,
                     .xtc_probability = 1.0,
                     .xtc_threshold = 0.5,
                     .order = SamplingOrder::llama_cpp});
    RandomStream random(1);
    RandomStream same(1);
    const SampledToken token = sampler.draw(*head, h, random, {.allowed = mask});
    EXPECT_EQ(token.id, sampler.draw(Fused(layer), h, same, {.allowed = mask}).id);
  }
}

TEST(Sampling, XtcNeedsFewFullScansOfAProvenHead) {
  const Large world;
  Sampler sampler({.xtc_probability = 1.0, .xtc_threshold = 0.05});
  RandomStream random(5);
  for (Eigen::Index q = 0; q < 200; ++q)
    sampler.draw(*world.head, world.contexts.row(q).transpose(), random, {.probabilities = false});
  EXPECT_LT(sampler.full_scans(), 40U);
}

TEST(Sampling, DrawsWithoutProbabilitiesAreTheSame) {
  const Large world;
  const Fused fused(world.layer);
  TokenMask mask(world.layer.vocab());
  for (TokenId id = 0; id < 3000; id += 3) mask.allow(id);
  const TokenBias bias[] = {{7, 2.0F}};
  const SoftmaxLayer capped = world.layer.with({.scale = 1.5F, .soft_cap = 6.0F});
  const Fused fused_capped(capped);
  const auto certified_capped = Certified::build(capped, world.contexts, {.boxes = BoundBoxes::always});
  const std::pair<const TopKSoftmax*, const TopKSoftmax*> heads[] = {{world.head.get(), &fused},
                                                                     {certified_capped.get(), &fused_capped}};
  for (const auto& [ours, theirs] : heads) {
    for (const double temperature : {0.3, 0.5, 0.8, 1.0, 1.7, 40.0}) {
      Sampler sampler({.temperature = temperature});
      Sampler exact({.temperature = temperature});
      for (Eigen::Index q = 0; q < 200; ++q) {
        const Eigen::VectorXf h = world.contexts.row(q);
        QueryOptions query = {.probabilities = false};
        if (q % 4 == 1) query.allowed = mask;
        if (q % 4 == 2) query.logit_bias = bias;
        RandomStream random(static_cast<std::uint64_t>(q));
        RandomStream same(static_cast<std::uint64_t>(q));
        const SampledToken token = sampler.draw(*ours, h, random, query);
        const SampledToken expected = exact.draw(*theirs, h, same, query);
        ASSERT_EQ(token.id, expected.id);
        ASSERT_EQ(token.logit, expected.logit);
        ASSERT_LE(token.log_prob_low, expected.log_prob + 1e-5);
        ASSERT_GE(token.log_prob_high, expected.log_prob - 1e-5);
        ASSERT_LE(token.log_prob_low, token.log_prob);
        ASSERT_GE(token.log_prob_high, token.log_prob);
        ASSERT_TRUE(std::isfinite(token.log_prob_low));
      }
    }
  }
}

TEST(Sampling, TokensFarFromTheBestAreDrawnAsOftenAsTheyShould) {
  const Large world;
  const Eigen::VectorXf h = world.contexts.row(0);
  const std::vector<double> expected = expected_distribution(Reference(world.layer, h).logits, {});
  const TopK best = world.head->query(h, {.k = 8});
  Workspace workspace;
  const std::vector<float> logits = [&] {
    const std::span<const float> all = world.head->logits(h, {}, workspace);
    return std::vector<float>(all.begin(), all.end());
  }();
  // The tokens by rank: 40 of them, and all others together.
  std::vector<TokenId> order(expected.size());
  std::iota(order.begin(), order.end(), 0);
  const auto p_of = [&](TokenId id) { return expected[static_cast<std::size_t>(id)]; };
  std::sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return p_of(a) > p_of(b); });
  std::vector<std::size_t> rank(order.size());
  std::vector<double> p(41);
  for (std::size_t i = 0; i < order.size(); ++i) {
    rank[static_cast<std::size_t>(order[i])] = std::min<std::size_t>(i, 40);
    p[std::min<std::size_t>(i, 40)] += p_of(order[i]);
  }
  // What a sampler draws that takes tokens outside of the 8 best only if their Gumbels are `above` the limit.
  const auto drawn_by_rule = [&](const TokenGumbels& gumbels, double above) {
    detail::Leader leader;
    for (std::size_t i = 0; i < best.size(); ++i)
      leader.offer(static_cast<double>(best.logits[i]) + gumbels[best.ids[i]], {best.logits[i], best.ids[i]});
    const double limit = leader.score - static_cast<double>(best.logits.back()) + above;
    gumbels.visit_possible(limit, logits.size(), [&](TokenId id, double /*least*/) {
      const float logit = logits[static_cast<std::size_t>(id)];
      if (gumbels[id] > limit) leader.offer(static_cast<double>(logit) + gumbels[id], {logit, id});
    });
    return leader.token.id;
  };
  std::vector<std::size_t> ours(41);
  std::vector<std::size_t> by_right_rule(41);
  std::vector<std::size_t> by_wrong_rule(41);
  Sampler sampler;
  RandomStream random(17);
  for (int i = 0; i < 20000; ++i) {
    RandomStream same = random;
    const QueryOptions query = {.probabilities = i % 2 == 0};
    ++ours[rank[static_cast<std::size_t>(sampler.draw(*world.head, h, random, query).id)]];
    const TokenGumbels gumbels(same.bits());
    ++by_right_rule[rank[static_cast<std::size_t>(drawn_by_rule(gumbels, 0.0))]];
    ++by_wrong_rule[rank[static_cast<std::size_t>(drawn_by_rule(gumbels, 2.0))]];
  }
  EXPECT_LT(testing::chi_square_deviations(ours, p), 4.0);
  EXPECT_EQ(ours, by_right_rule);
  EXPECT_GT(testing::chi_square_deviations(by_wrong_rule, p), 6.0);
}

/// One token leads all others by a thousand nats, whose weights no double holds; at high temperatures they
/// count all the same.
SoftmaxLayer layer_with_a_leader() {
  Eigen::VectorXf biases = testing::random_vector(4000, 5, 0.5F);
  biases[1234] = 1000.0F;
  return SoftmaxLayer::own(testing::random_matrix(4000, 16, 4, 0.01F), biases);
}

TEST(Sampling, CountsTokensFarBelowTheBestAtHighTemperatures) {
  const SoftmaxLayer layer = layer_with_a_leader();
  const auto head = Certified::build(layer, RowMajorMatrix(0, 16));
  const Fused fused(layer);
  for (const double temperature : {100.0, 300.0, 1000.0}) {
    for (const double top_p : {1.0, 0.9}) {
      for (const std::size_t top_k : {std::size_t{0}, std::size_t{3000}}) {
        const SamplingOptions options = {.temperature = temperature, .top_k = top_k, .top_p = top_p};
        Sampler ours(options);
        Sampler theirs(options);
        RandomStream random(5);
        RandomStream same(5);
        for (unsigned i = 0; i < 20; ++i) {
          const Eigen::VectorXf h = testing::random_vector(16, i);
          const QueryOptions query = {.probabilities = i % 4 != 0};
          const SampledToken token = ours.draw(*head, h, random, query);
          const SampledToken expected = theirs.draw(fused, h, same);
          ASSERT_EQ(token.id, expected.id) << temperature << ' ' << top_p << ' ' << top_k;
          ASSERT_LE(token.log_prob_low, expected.log_prob + 1e-5);
          ASSERT_GE(token.log_prob_high, expected.log_prob - 1e-5);
        }
      }
    }
  }
}

TEST(Sampling, BoundsWhatIsOutsideAtEveryTemperature) {
  std::vector<double> logits = {3.0, 2.5, 1.0};
  for (int i = 0; i < 50; ++i) logits.push_back(0.9 - 0.1 * static_cast<double>(i));
  for (const double lead : {0.0, 50.0, 1000.0, 1e6}) {
    TopK answer;
    answer.ids = {0, 1, 2};
    answer.logits = {static_cast<float>(3.0 + lead), 2.5F, 1.0F};
    const double best = 3.0 + lead;
    const auto outside = [&](double temperature) {
      double sum = 0.0;
      for (std::size_t i = 3; i < logits.size(); ++i) sum += std::exp((logits[i] - logits[3]) / temperature);
      return (logits[3] - best) / temperature + std::log(sum);
    };
    double inside = 0.0;
    for (std::size_t i = 0; i < 3; ++i) inside += std::exp(static_cast<double>(answer.logits[i]) - best);
    answer.log_z = best + std::log(inside + std::exp(outside(1.0)));
    answer.log_z_low = answer.log_z_high = answer.log_z;
    answer.normalizer = Normalizer::exact;
    for (const double temperature : {1e-30, 0.1, 1.0, 3.0, 100.0, 1e4, 1e30}) {
      const detail::Bounds bounds = detail::log_outside(answer, logits.size(), temperature);
      const double rounding = 1e-12 * (1.0 + std::abs(outside(temperature)));
      EXPECT_LE(bounds.low, outside(temperature) + rounding) << lead << ' ' << temperature;
      EXPECT_GE(bounds.high, outside(temperature) - rounding) << lead << ' ' << temperature;
      EXPECT_LE(bounds.high, std::log(50.0) + (1.0 - best) / temperature + rounding);
    }
  }
}

TEST(Sampling, EqualLogitsAreEquallyProbable) {
  const RowMajorMatrix W = RowMajorMatrix::Zero(500, 8);
  const SoftmaxLayer layer = SoftmaxLayer::own(W, Eigen::VectorXf::Zero(500));
  const auto head = Certified::build(layer, RowMajorMatrix(0, 8));
  const Fused fused(layer);
  const Eigen::VectorXf h = Eigen::VectorXf::Ones(8);
  for (const double temperature : {1e-30, 1.0, 1e30}) {
    Sampler ours({.temperature = temperature});
    Sampler theirs({.temperature = temperature});
    RandomStream random(2);
    RandomStream same(2);
    std::vector<std::size_t> counts(500);
    for (int i = 0; i < 20000; ++i) {
      const TokenId id = ours.draw(*head, h, random).id;
      if (i < 200) {
        ASSERT_EQ(id, theirs.draw(fused, h, same).id);
      }
      ++counts[static_cast<std::size_t>(id)];
    }
    EXPECT_LT(testing::chi_square_deviations(counts, std::vector<double>(500, 1.0 / 500)), 4.0);
  }
}

TEST(Sampling, TheProbabilityOfATokenIsThatOfTheLayer) {
  const Large world;
  Sampler sampler;
  RandomStream random(5);
  for (Eigen::Index q = 0; q < 100; ++q) {
    const Eigen::VectorXf h = world.contexts.row(q);
    const std::vector<double> p = expected_distribution(Reference(world.layer, h).logits, {});
    for (const bool probabilities : {true, false}) {
      const SampledToken token = sampler.draw(*world.head, h, random, {.probabilities = probabilities});
      const double exact = std::log(p[static_cast<std::size_t>(token.id)]);
      EXPECT_LE(token.log_prob_low, exact + 1e-5);
      EXPECT_GE(token.log_prob_high, exact - 1e-5);
      EXPECT_LE(token.log_prob_low, token.log_prob);
      EXPECT_GE(token.log_prob_high, token.log_prob);
    }
  }
}

TEST(Sampling, AProbabilityIsAsNarrowAsAskedFor) {
  const Drawn world;
  const auto head = Certified::build(world.layer, world.contexts, {.width = 16});
  const Fused fused(world.layer);
  for (const SamplingOptions& options :
       {SamplingOptions{}, SamplingOptions{.temperature = 0.8}, SamplingOptions{.top_p = 0.9}}) {
    Sampler sampler(options);
    Sampler wide(options);
    Sampler exact(options);
    RandomStream random(11);
    RandomStream of_wide(11);
    RandomStream of_exact(11);
    std::size_t wider = 0;
    for (Eigen::Index i = 0; i < 100; ++i) {
      const Eigen::VectorXf h = world.contexts.row(i);
      const SampledToken expected = exact.draw(fused, h, of_exact);
      const SampledToken token = sampler.draw(*head, h, random, {.log_z_tolerance = 0.05});
      ASSERT_EQ(token.id, expected.id);
      ASSERT_NEAR(token.log_prob, expected.log_prob, 0.05);
      ASSERT_LE(token.log_prob_high - token.log_prob_low, 0.05);
      const SampledToken unasked = wide.draw(*head, h, of_wide);
      wider += unasked.log_prob_high - unasked.log_prob_low > 0.05 ? 1U : 0U;
    }
    EXPECT_GT(wider, 10U);
    EXPECT_GE(sampler.full_scans(), wider);
    EXPECT_LE(sampler.full_scans(), wide.full_scans() + wider);
  }
}

// Sixteen weights, the last of them nothing, may sum up to less than the first fifteen.
TEST(Sampling, BoundsOfAProbabilityAreInOrder) {
  const RowMajorMatrix contexts = clustered_contexts(60, 8, 4, 9);
  Sampler sampler({.temperature = 1.3, .top_k = 16, .top_p = 0.9999999});
  RandomStream random(3);
  for (unsigned seed = 1; seed <= 20; ++seed) {
    RowMajorMatrix W = random_layer(16, 8, seed).weights();
    Eigen::VectorXf b = Eigen::VectorXf::Zero(16);
    b[5] = -60.0F;
    const auto head = Certified::build(SoftmaxLayer::own(W, b), contexts, {.boxes = BoundBoxes::always});
    for (const auto& h : contexts.rowwise()) {
      const SampledToken token = sampler.draw(*head, h, random);
      ASSERT_LE(token.log_prob_low, token.log_prob_high);
    }
  }
}

TEST(Sampling, OptionsMayChangeFromDrawToDraw) {
  const Drawn world;
  const auto head = Certified::build(world.layer, world.contexts, {.width = 16});
  Sampler changed;
  for (const SamplingOptions& options : kSamplingCases) {
    changed.set_options(options);
    Sampler fresh(options);
    RandomStream random(7);
    RandomStream other(7);
    for (Eigen::Index i = 0; i < 20; ++i) {
      const Eigen::VectorXf h = world.contexts.row(i);
      ASSERT_EQ(changed.draw(*head, h, random).id, fresh.draw(*head, h, other).id);
    }
  }
  changed.set_options({.temperature = 0.5});
  EXPECT_THROW(changed.set_options({.temperature = -1.0}), std::invalid_argument);
  EXPECT_EQ(changed.options().temperature, 0.5);
}

TEST(Sampling, GreedyTakesTheBest) {
  const Drawn world;
  const Fused fused(world.layer);
  Sampler sampler({.temperature = 0.0});
  RandomStream random(5);
  for (Eigen::Index q = 0; q < 20; ++q) {
    const Eigen::VectorXf h = world.contexts.row(q);
    EXPECT_EQ(sampler.draw(fused, h, random).id, fused.query(h).ids[0]);
  }
}

TEST(Sampling, TheLeastTemperatureIsGreedy) {
  const Drawn world;
  const Fused head(world.layer);
  const Eigen::VectorXf h = world.contexts.row(3);
  const TokenId best = head.query(h, {.k = 1}).ids[0];
  RandomStream random(5);
  for (const double top_p : {1.0, 0.9}) {
    const SampledToken token = Sampler({.temperature = 1e-30, .top_p = top_p}).draw(head, h, random);
    EXPECT_EQ(token.id, best);
    EXPECT_EQ(token.log_prob, 0.0);
  }
}

TEST(Sampling, MaskAndBiasActBeforeEverything) {
  const Drawn world;
  const auto head = Certified::build(world.layer, world.contexts, {.width = 16});
  const Eigen::VectorXf h = world.contexts.row(3);
  TokenMask mask(world.layer.vocab());
  for (const TokenId id : {5, 7, 100}) mask.allow(id);
  const TokenBias bias[] = {{7, 2.0F}};
  const QueryOptions query = {.allowed = mask, .logit_bias = bias};
  Reference reference(world.layer, h);
  for (std::size_t id = 0; id < reference.logits.size(); ++id) {
    if (id != 5 && id != 7 && id != 100) reference.logits[id] = -HUGE_VAL;
  }
  reference.logits[7] += 2.0;
  for (const SamplingOptions& options : {SamplingOptions{}, SamplingOptions{.top_p = 0.9}}) {
    const std::vector<double> expected = expected_distribution(reference.logits, options);
    Sampler sampler(options);
    RandomStream random(1);
    std::vector<std::size_t> counts(expected.size());
    for (int i = 0; i < 20000; ++i) {
      ++counts[static_cast<std::size_t>(sampler.draw(*head, h, random, query).id)];
    }
    EXPECT_LT(testing::chi_square_deviations(counts, expected), 4.0);
  }
}

TEST(Sampling, MaskAndBiasCountInADeviation) {
  const Large world;
  const Fused fused(world.layer);
  TokenMask mask(world.layer.vocab());
  for (TokenId id = 0; id < 3000; ++id) {
    if (id % 25 != 3) mask.allow(id);
  }
  std::vector<TokenBias> biases;
  for (TokenId id = 0; id < 60; ++id) biases.push_back({id, id % 2 == 0 ? 30.0F : -30.0F});
  const QueryOptions query = {.allowed = mask, .logit_bias = biases};
  const SamplingOptions options = {.top_n_sigma = 1.5};
  Sampler ours(options);
  Sampler theirs(options);
  for (Eigen::Index q = 0; q < 200; ++q) {
    RandomStream random(static_cast<std::uint64_t>(q));
    RandomStream same(static_cast<std::uint64_t>(q));
    const Eigen::VectorXf h = world.contexts.row(q);
    ASSERT_EQ(ours.draw(*world.head, h, random, query).id, theirs.draw(fused, h, same, query).id);
  }
  EXPECT_LT(ours.full_scans(), 10U);
}

TEST(Sampling, OneTokenVocabulary) {
  const SoftmaxLayer layer = random_layer(1, 4, 1);
  const auto head = Certified::build(layer, RowMajorMatrix(0, 4));
  RandomStream random(1);
  for (const SamplingOptions& options : kSamplingCases) {
    Sampler sampler(options);
    const SampledToken token = sampler.draw(*head, testing::random_vector(4, 2), random);
    EXPECT_EQ(token.id, 0);
    EXPECT_NEAR(token.log_prob, 0.0, 1e-6);
  }
}

TEST(Sampling, SaysWhichValueItRefuses) {
  EXPECT_EQ(refusal([] { check({.temperature = 1e-31}); }),
            "sampling: temperature is 1e-31; it must be 0 (greedy), or from 1e-30 to 1e30");
  EXPECT_EQ(refusal([] { check({.top_p = 1.0000001}); }),
            "sampling: top_p is 1.0000001; it must be above 0 and at most 1");
  EXPECT_EQ(refusal([] { check({.min_p = -0.5}); }), "sampling: min_p is -0.5; it must be between 0 and 1");
  EXPECT_EQ(refusal([] { check({.typical_p = std::nan("")}); }),
            "sampling: typical_p is NaN; it must be above 0 and at most 1");
}

TEST(Sampling, RefusesUnusableOptions) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(Sampler({.temperature = -1.0}), std::invalid_argument);
  EXPECT_THROW(Sampler({.temperature = nan}), std::invalid_argument);
  EXPECT_THROW(Sampler({.temperature = 1e-31}), std::invalid_argument);
  EXPECT_THROW(Sampler({.temperature = 1e31}), std::invalid_argument);
  EXPECT_THROW(Sampler({.temperature = HUGE_VAL}), std::invalid_argument);
  EXPECT_THROW(Sampler({.top_p = 0.0}), std::invalid_argument);
  EXPECT_THROW(Sampler({.top_p = 1.1}), std::invalid_argument);
  EXPECT_THROW(Sampler({.min_p = -0.1}), std::invalid_argument);
  EXPECT_THROW(Sampler({.min_p = 1.1}), std::invalid_argument);
  EXPECT_THROW(Sampler({.typical_p = 0.0}), std::invalid_argument);
  EXPECT_THROW(Sampler({.top_n_sigma = -1.0}), std::invalid_argument);
  EXPECT_THROW(Sampler({.top_n_sigma = HUGE_VAL}), std::invalid_argument);
  EXPECT_THROW(Sampler({.xtc_probability = nan}), std::invalid_argument);
  EXPECT_THROW(Sampler({.xtc_threshold = 0.0}), std::invalid_argument);
  EXPECT_THROW(Sampler({.log_z_error = -0.1}), std::invalid_argument);
  SamplingOptions twice;
  twice.order.steps[0] = twice.order.steps[1];
  EXPECT_THROW(Sampler{twice}, std::invalid_argument);
  const Drawn world;
  const TokenMask none(world.layer.vocab());
  RandomStream random(1);
  for (const testing::Backend& backend : testing::all_backends()) {
    const auto head = backend.make(world.layer, world.contexts);
    Sampler sampler;
    const Eigen::VectorXf h = world.contexts.row(0);
    EXPECT_THROW(sampler.draw(*head, h, random, {.allowed = none}), std::invalid_argument) << backend.name;
    EXPECT_THROW(sampler.draw(*head, Eigen::VectorXf::Zero(3), random), std::invalid_argument);
    for (const double temperature : {0.0, 0.3, 1.0}) {
      sampler.set_options({.temperature = temperature});
      EXPECT_THROW(sampler.draw(*head, h, random, {.k = 0}), std::invalid_argument) << backend.name;
      EXPECT_THROW(sampler.draw(*head, h, random, {.probabilities = false, .log_z_tolerance = nan}),
                   std::invalid_argument)
          << backend.name;
    }
  }
}

}  // namespace
}  // namespace topksoftmax
