// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/backend_sampler.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conformance/backends.hpp"
#include "decoding/draws_on_threads.hpp"
#include "decoding/expected_distribution.hpp"
#include "support/layers.hpp"
#include "support/reference.hpp"
#include "support/statistics.hpp"
#include "topksoftmax/baselines/build_greedy_mips.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/l2s/build.hpp"
#include "topksoftmax/mapped_vocabulary.hpp"
#include "topksoftmax/shortlist/build.hpp"
#include "topksoftmax/svd/build.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::expected_distribution;
using testing::random_layer;
using testing::Reference;

struct World {
  SoftmaxLayer layer = random_layer(300, 24, 3);
  RowMajorMatrix contexts = 0.5F * clustered_contexts(600, 24, 6, 9);
  std::vector<std::shared_ptr<const TopKSoftmax>> heads = {
      L2S::train(layer, contexts, {.clusters = 6, .budget = 40.0, .prior = 0.0}),
      L2S::train(layer, contexts, {.clusters = 6, .budget = 40.0, .prior = 0.0, .outside_sample = 0}),
      Shortlist::build(layer, contexts, {.top_frequent = 60}),
      SvdSoftmax::build(layer, {.preview_width = 12, .refine_width = 30}),
  };
};

/// The logits that a backend itself has: exact ones of its candidates, and of the others those of the layer,
/// moved alike so that their mass is what it counts.
std::vector<double> own_logits(const TopKSoftmax& head, const Eigen::VectorXf& h) {
  const Reference reference(head.layer(), h);
  Workspace workspace;
  const std::optional<Candidates> found = head.candidates(h.data(), 24, {}, workspace);
  std::vector<bool> inside(reference.logits.size(), false);
  for (const TokenId id : found->ids) inside[static_cast<std::size_t>(id)] = true;
  double others = 0.0;
  double sum = 0.0;
  for (std::size_t id = 0; id < inside.size(); ++id)
    (inside[id] ? sum : others) += std::exp(reference.logits[id]);
  const double outside = std::min(found->outside, std::log(sum) + found->most_outside);
  std::vector<double> logits = reference.logits;
  for (std::size_t id = 0; id < inside.size(); ++id) {
    if (!inside[id]) logits[id] += outside - std::log(others);
  }
  return logits;
}

/// The same where the options take the k best of the candidates: no others are left.
std::vector<double> own_logits(const TopKSoftmax& head, const Eigen::VectorXf& h,
                               const SamplingOptions& options) {
  std::vector<double> logits = own_logits(head, h);
  Workspace workspace;
  const std::optional<Candidates> found = head.candidates(h.data(), 24, {}, workspace);
  if (options.top_k == 0 || options.top_k > found->ids.size()) return logits;
  std::vector<double> left(logits.size(), -std::numeric_limits<double>::infinity());
  for (const TokenId id : found->ids)
    left[static_cast<std::size_t>(id)] = logits[static_cast<std::size_t>(id)];
  return left;
}

const SamplingOptions kOptions[] = {
    {},
    {.temperature = 0.7},
    {.temperature = 1.6},
    {.top_k = 10},
    {.top_k = 25, .top_p = 0.8},
    {.top_p = 0.9},
    {.temperature = 0.8, .top_p = 0.97, .min_p = 0.01},
    {.typical_p = 0.6},
    {.xtc_probability = 0.5, .xtc_threshold = 0.05},
};

/// Draws are of the backend's own distribution. Returns how many of them took a scan.
std::size_t expect_own_draws(const TopKSoftmax& head, const Eigen::VectorXf& h,
                             const SamplingOptions& options) {
  const std::vector<double> expected = expected_distribution(own_logits(head, h, options), options);
  BackendSampler sampler(options);
  RandomStream random(11);
  std::vector<std::size_t> counts(expected.size());
  for (int n = 0; n < 10000; ++n) {
    const SampledToken token = sampler.draw(head, h, random);
    const auto id = static_cast<std::size_t>(token.id);
    ++counts[id];
    EXPECT_GT(expected[id], 0.0);
    if (options.xtc_probability > 0.0) continue;
    EXPECT_LE(token.log_prob_low - 1e-4, std::log(expected[id]));
    EXPECT_GE(token.log_prob_high + 1e-4, std::log(expected[id]));
    if (::testing::Test::HasFailure()) return sampler.full_scans();
  }
  EXPECT_LT(testing::chi_square_deviations(counts, expected), 4.0);
  return sampler.full_scans();
}

TEST(BackendSampler, DrawsFromTheBackendsOwnDistribution) {
  const World world;
  const Eigen::VectorXf h = world.contexts.row(0);
  for (std::size_t i = 0; i < world.heads.size(); ++i) {
    for (const SamplingOptions& options : kOptions) {
      SCOPED_TRACE(std::to_string(i) + ", options " + std::to_string(&options - kOptions));
      expect_own_draws(*world.heads[i], h, options);
    }
  }
}

TEST(BackendSampler, ThreadsChangeNoDraw) {
  testing::SharedWork work;
  work.contexts *= 0.2F;
  // One that has a distribution of its own, and one whose is the layer's.
  const auto svd = SvdSoftmax::build(work.layer, {.preview_width = 32, .refine_width = 100});
  const auto certified = Certified::build(work.layer, work.contexts);
  testing::expect_same_draws_on_threads<BackendSampler>(*svd, work, kOptions, 50);
  testing::expect_same_draws_on_threads<BackendSampler>(*certified, work, kOptions, 50);
}

/// The share of listed tokens that rank before all others, since each has more than the others' mass.
double leading_share(const TopKSoftmax& head, const Eigen::VectorXf& h) {
  const std::vector<double> logits = own_logits(head, h);
  Workspace workspace;
  const std::optional<Candidates> found = head.candidates(h.data(), 24, {}, workspace);
  std::vector<bool> inside(logits.size(), false);
  for (const TokenId id : found->ids) inside[static_cast<std::size_t>(id)] = true;
  double outside = 0.0;
  double all = 0.0;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    all += std::exp(logits[id]);
    if (!inside[id]) outside += std::exp(logits[id]);
  }
  double leading = 0.0;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (inside[id] && std::exp(logits[id]) > outside) leading += std::exp(logits[id]);
  }
  return leading / all;
}

// Some listed tokens rank before all others, and the cut is behind them.
TEST(BackendSampler, ScansWhereItsListDoesNotDecideACut) {
  const World world;
  std::size_t scans = 0;
  for (const std::size_t i : {0U, 2U, 3U}) {
    const TopKSoftmax& head = *world.heads[i];
    Eigen::VectorXf h = world.contexts.row(0);
    double share = leading_share(head, h);
    for (Eigen::Index q = 0; q < 400; ++q) {
      const Eigen::VectorXf other = static_cast<float>(1 + q % 6) * world.contexts.row(q);
      const double its = leading_share(head, other);
      if (std::abs(its - 0.7) < std::abs(share - 0.7)) {
        h = other;
        share = its;
      }
    }
    ASSERT_NEAR(share, 0.7, 0.15) << i;
    for (const SamplingOptions& options :
         {SamplingOptions{.top_k = 100}, SamplingOptions{.top_p = 0.97}, SamplingOptions{.min_p = 0.002}}) {
      SCOPED_TRACE(i);
      scans += expect_own_draws(head, h, options);
    }
  }
  EXPECT_EQ(scans, 90000U);
}

TEST(BackendSampler, TakesTheBackendsOwnBestTokensWithoutAScan) {
  const World world;
  for (const std::size_t i : {0U, 2U, 3U}) {
    SCOPED_TRACE(i);
    EXPECT_EQ(expect_own_draws(*world.heads[i], world.contexts.row(0), {.temperature = 1.3, .top_k = 20}),
              0U);
  }
}

// Contexts unlike those that were learned from have the mass outside at its limit.
TEST(BackendSampler, CountsNoMoreOutsideThanWasLearned) {
  const World world;
  const TopKSoftmax& head = *world.heads[0];
  const auto beyond = [&](const Eigen::VectorXf& h) {
    Workspace workspace;
    const std::optional<Candidates> found = head.candidates(h.data(), 24, {}, workspace);
    const Reference reference(head.layer(), h);
    double inside = 0.0;
    for (const TokenId id : found->ids) inside += std::exp(reference.logits[static_cast<std::size_t>(id)]);
    return found->outside - (std::log(inside) + found->most_outside);
  };
  Eigen::VectorXf h;
  for (unsigned seed = 0; seed < 3000; ++seed) {
    const Eigen::VectorXf other = testing::random_vector(24, seed, 0.1F * static_cast<float>(1 + seed % 30));
    if (h.size() == 0 || beyond(other) > beyond(h)) h = other;
  }
  ASSERT_GT(beyond(h), 0.5);
  expect_own_draws(head, h, {});
}

TEST(BackendSampler, IsNoDrawFromTheLayersDistribution) {
  const World world;
  const Eigen::VectorXf h = world.contexts.row(0);
  const std::vector<double> of_layer = expected_distribution(Reference(world.layer, h).logits, {});
  BackendSampler sampler;
  RandomStream random(11);
  std::vector<std::size_t> counts(of_layer.size());
  for (int n = 0; n < 10000; ++n)
    ++counts[static_cast<std::size_t>(sampler.draw(*world.heads[1], h, random).id)];
  EXPECT_GT(testing::chi_square_deviations(counts, of_layer), 6.0) << "it has no mass outside";
}

TEST(BackendSampler, ScansForTokensOutsideAlone) {
  const World world;
  BackendSampler learned;
  BackendSampler candidates;
  BackendSampler nucleus({.top_p = 0.5});
  RandomStream random(5);
  double outside = 0.0;
  for (Eigen::Index q = 0; q < 400; ++q) {
    const Eigen::VectorXf h = world.contexts.row(q);
    learned.draw(*world.heads[0], h, random);
    candidates.draw(*world.heads[1], h, random);
    nucleus.draw(*world.heads[3], 4.0F * h, random);
    Workspace workspace;
    const std::optional<Candidates> found = world.heads[0]->candidates(h.data(), 24, {}, workspace);
    outside += std::exp(found->outside - world.heads[0]->query(h, {.k = 1}).log_z);
  }
  EXPECT_NEAR(static_cast<double>(learned.full_scans()), outside, 4.0 * std::sqrt(outside));
  EXPECT_EQ(candidates.full_scans(), 0U);
  EXPECT_LT(nucleus.full_scans(), 200U);
}

TEST(BackendSampler, ObeysMasksAndBiases) {
  const World world;
  const Eigen::VectorXf h = world.contexts.row(3);
  TokenMask mask(world.layer.vocab());
  for (TokenId id = 0; id < 300; id += 2) mask.allow(id);
  const TokenBias bias[] = {{8, 30.0F}};
  for (const testing::Backend& backend : testing::all_backends()) {
    const auto head = backend.make(world.layer, world.contexts);
    BackendSampler sampler({.temperature = 1.3});
    RandomStream random(1);
    for (int n = 0; n < 50; ++n)
      EXPECT_EQ(sampler.draw(*head, h, random, {.allowed = mask}).id % 2, 0) << backend.name;
    EXPECT_EQ(sampler.draw(*head, h, random, {.allowed = mask, .logit_bias = bias}).id, 8) << backend.name;
  }
}

struct Wide {
  SoftmaxLayer layer = random_layer(4000, 24, 3);
  RowMajorMatrix contexts = 0.5F * clustered_contexts(600, 24, 6, 9);
  std::unique_ptr<L2S> head = L2S::train(layer, contexts, {.clusters = 6, .budget = 40.0});
};

/// A mask of so many tokens, one of which is a candidate of the head.
TokenMask mask_with_one_candidate(const TopKSoftmax& head, const Eigen::VectorXf& h, std::size_t count) {
  Workspace workspace;
  const std::optional<Candidates> found = head.candidates(h.data(), 24, {}, workspace);
  std::vector<bool> proposed(head.vocab(), false);
  for (const TokenId id : found->ids) proposed[static_cast<std::size_t>(id)] = true;
  TokenMask mask(head.vocab());
  mask.allow(found->ids.front());
  std::size_t allowed = 1;
  for (std::size_t id = 0; allowed < count; ++id) {
    if (proposed[id]) continue;
    mask.allow(static_cast<TokenId>(id));
    ++allowed;
  }
  return mask;
}

// Few allowed tokens are simply scored, and so are all where fewer than k candidates are left.
TEST(BackendSampler, DrawsUnderAMaskFromWhatTheBackendAnswers) {
  const Wide world;
  const Eigen::VectorXf h = world.contexts.row(0);
  for (const std::size_t count : {21U, 125U, 300U}) {
    const TokenMask mask = mask_with_one_candidate(*world.head, h, count);
    for (const std::size_t k : {std::size_t{1}, std::size_t{2}, count}) {
      const QueryOptions query = {.k = k, .allowed = mask};
      const double log_z = world.head->query(h, query).log_z;
      BackendSampler sampler;
      RandomStream random(11);
      for (int n = 0; n < 50; ++n) {
        const SampledToken token = sampler.draw(*world.head, h, random, query);
        EXPECT_NEAR(token.log_prob, static_cast<double>(token.logit) - log_z, 1e-5) << count << ' ' << k;
      }
    }
  }
}

TEST(BackendSampler, TinyTemperaturesLeaveEqualTokensEquallyLikely) {
  const World world;
  RowMajorMatrix W = world.layer.weights();
  const Eigen::VectorXf h = world.contexts.row(0);
  const TopK best = Fused(world.layer).query(h, {.k = 2});
  W.row(best.ids[1]) = W.row(best.ids[0]);
  Eigen::VectorXf b = world.layer.biases();
  b[best.ids[1]] = b[best.ids[0]];
  const auto head = L2S::train(SoftmaxLayer::own(std::move(W), std::move(b)), world.contexts,
                               {.clusters = 6, .budget = 40.0});
  for (const double temperature : {1e-15, 1e-20, 1e-30}) {
    BackendSampler sampler({.temperature = temperature});
    RandomStream random(11);
    int first = 0;
    for (int n = 0; n < 400; ++n) {
      const SampledToken token = sampler.draw(*head, h, random);
      EXPECT_TRUE(token.id == best.ids[0] || token.id == best.ids[1]);
      EXPECT_NEAR(token.log_prob, -std::log(2.0), 1e-6);
      first += token.id == best.ids[0] ? 1 : 0;
    }
    EXPECT_NEAR(first, 200, 60) << "six deviations";
  }
}

// Of more than 40 candidates 23 are forbidden: the 30 best are not all among the others.
TEST(BackendSampler, CountsForbiddenCandidatesAmongNoBestOnes) {
  constexpr std::size_t kForbidden = 23;
  const Wide world;
  const Eigen::VectorXf h = world.contexts.row(0);
  Workspace workspace;
  const std::optional<Candidates> found = world.head->candidates(h.data(), 24, {}, workspace);
  ASSERT_GT(found->ids.size(), 40U);
  ASSERT_LT(found->ids.size(), 30 + kForbidden);
  TokenMask mask(world.layer.vocab());
  for (std::size_t id = 0; id < world.layer.vocab(); ++id) mask.allow(static_cast<TokenId>(id));
  for (const TokenId id : found->ids.first(kForbidden)) mask.forbid(id);
  BackendSampler sampler({.top_k = 30});
  RandomStream random(11);
  for (int n = 0; n < 50; ++n) sampler.draw(*world.head, h, random, {.allowed = mask});
  EXPECT_EQ(sampler.full_scans(), 50U);
}

/// Biases for every other token of a vocabulary.
std::vector<TokenBias> biases_of_half(std::size_t vocab, float bias) {
  std::vector<TokenBias> biases;
  for (std::size_t id = 0; id < vocab; id += 2) biases.push_back({static_cast<TokenId>(id), bias});
  return biases;
}

/// log Z as a draw of a listed token has it: others come by scans, with logits that were moved.
double log_z_of_draw(const TopKSoftmax& head, const Eigen::VectorXf& h, const QueryOptions& query) {
  BackendSampler sampler;
  RandomStream random(11);
  for (std::size_t n = 0; n < 1000; ++n) {
    const SampledToken token = sampler.draw(head, h, random, query);
    if (sampler.full_scans() == n) return static_cast<double>(token.logit) - token.log_prob;
  }
  return std::nan("");
}

TEST(BackendSampler, HasTheLogZOfTheBackendUnderBiases) {
  const World world;
  for (const float bias : {0.0F, -3.0F, 2.5F}) {
    const std::vector<TokenBias> biases = biases_of_half(world.layer.vocab(), bias);
    const QueryOptions query = {.logit_bias = biases};
    for (const auto& head : world.heads) {
      for (Eigen::Index q = 0; q < 20; ++q) {
        const Eigen::VectorXf h = world.contexts.row(q);
        EXPECT_NEAR(log_z_of_draw(*head, h, query), head->query(h, query).log_z, 1e-5)
            << head->name() << ", bias " << bias;
      }
    }
  }
}

// GreedyMips has what a query edits apart from its candidates.
TEST(BackendSampler, HasTheLogZOfTheBackendWhereForbiddenTokensAreBiased) {
  const World world;
  std::vector<std::shared_ptr<const TopKSoftmax>> heads = world.heads;
  heads.push_back(GreedyMips::build(world.layer, world.contexts, {.budget = 30}));
  const std::vector<TokenBias> biases = biases_of_half(world.layer.vocab(), 1.5F);
  for (Eigen::Index q = 0; q < 20; ++q) {
    const Eigen::VectorXf h = world.contexts.row(q);
    const TopK best = Fused(world.layer).query(h, {.k = 24});
    TokenMask mask = TokenMask::all(world.layer.vocab());
    for (std::size_t i = 0; i < best.size(); i += 2) mask.forbid(best.ids[i]);
    const QueryOptions query = {.allowed = mask, .logit_bias = biases};
    for (const auto& head : heads) {
      EXPECT_NEAR(log_z_of_draw(*head, h, query), head->query(h, query).log_z, 1e-5) << head->name();
    }
  }
}

TEST(BackendSampler, IgnoresBiasesOfTokensWithoutARow) {
  const World world;
  std::vector<TokenId> token_of_row(world.layer.vocab());
  for (std::size_t row = 0; row < token_of_row.size(); ++row)
    token_of_row[row] = static_cast<TokenId>(2 * row + 1);
  const std::size_t vocab = 2 * token_of_row.size();
  const auto head = MappedVocabulary::wrap(world.heads[0], token_of_row, vocab);
  const Eigen::VectorXf h = world.contexts.row(0);
  const std::vector<TokenBias> without_row = biases_of_half(vocab, 1.0F);
  std::vector<TokenBias> both;
  for (const TokenBias& bias : without_row) {
    both.push_back(bias);
    if (bias.id % 6 == 0) both.push_back({bias.id + 1, 1.5F});
  }
  for (const std::vector<TokenBias>& biases : {without_row, both}) {
    const QueryOptions query = {.logit_bias = biases};
    EXPECT_NEAR(log_z_of_draw(*head, h, query), head->query(h, query).log_z, 1e-5);
    BackendSampler sampler;
    RandomStream random(11);
    for (int n = 0; n < 50; ++n) EXPECT_EQ(sampler.draw(*head, h, random, query).id % 2, 1);
  }
}

TEST(BackendSampler, DrawsAsTheSamplerDoesWhereAHeadIsProvenOrScans) {
  const World world;
  const Fused fused(world.layer);
  const auto certified = Certified::build(world.layer, world.contexts);
  BackendSampler ours;
  Sampler theirs;
  for (const TopKSoftmax* head :
       {static_cast<const TopKSoftmax*>(&fused), static_cast<const TopKSoftmax*>(certified.get())}) {
    RandomStream random(5);
    RandomStream same(5);
    for (Eigen::Index q = 0; q < 30; ++q) {
      const Eigen::VectorXf h = world.contexts.row(q);
      EXPECT_EQ(ours.draw(*head, h, random).id, theirs.draw(*head, h, same).id);
    }
  }
}

TEST(BackendSampler, RefusesWhatASamplerRefuses) {
  EXPECT_THROW(BackendSampler({.top_p = 0.0}), std::invalid_argument);
  const World world;
  const TokenMask none(world.layer.vocab());
  RandomStream random(1);
  BackendSampler sampler;
  const Eigen::VectorXf h = world.contexts.row(0);
  for (const auto& head : world.heads) {
    EXPECT_THROW(sampler.draw(*head, h, random, {.allowed = none}), std::invalid_argument);
    EXPECT_THROW(sampler.draw(*head, Eigen::VectorXf::Zero(3), random), std::invalid_argument);
  }
}

}  // namespace
}  // namespace topksoftmax
