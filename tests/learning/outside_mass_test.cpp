// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/outside_mass.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>
#include <vector>

#include "support/layers.hpp"
#include "support/reference.hpp"
#include "topksoftmax/adaptive/build.hpp"
#include "topksoftmax/baselines/build_greedy_mips.hpp"
#include "topksoftmax/baselines/build_lsh_mips.hpp"
#include "topksoftmax/baselines/build_pca_mips.hpp"
#include "topksoftmax/baselines/build_wta_lsh_each.hpp"
#include "topksoftmax/decoding/perplexity.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/fgd/build.hpp"
#include "topksoftmax/kernels/log_sum_exp.hpp"
#include "topksoftmax/l2s/build.hpp"
#include "topksoftmax/learning/learn_outside_mass.hpp"
#include "topksoftmax/parallel/thread_pool.hpp"
#include "topksoftmax/row_clusters/build.hpp"
#include "topksoftmax/screened_softmax.hpp"
#include "topksoftmax/shortlist/build.hpp"
#include "topksoftmax/wta/build.hpp"

namespace topksoftmax {
namespace {

using detail::OutsideSample;
using testing::clustered_contexts;
using testing::random_layer;
using testing::random_matrix;
using testing::random_vector;
using testing::Reference;

constexpr Eigen::Index kDim = 12;
constexpr std::size_t kGroups = 4;

/// Masses that are exactly log-linear in each of four groups, in the order 0, 1, 2, 3, 0, …
OutsideSample linear_sample(std::size_t count) {
  OutsideSample sample(random_matrix(static_cast<Eigen::Index>(count), kDim, 1));
  const RowMajorMatrix slopes = random_matrix(kGroups, kDim, 2, 0.5F);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t group = i % kGroups;
    const float slope =
        slopes.row(static_cast<Eigen::Index>(group)).dot(sample.contexts.row(static_cast<Eigen::Index>(i)));
    sample.take(i, group, {1.0, static_cast<double>(group) + static_cast<double>(slope)});
  }
  return sample;
}

TEST(OutsideMass, LearnsWhatIsLogLinearInEachGroup) {
  const OutsideSample sample = linear_sample(4000);
  const auto mass = detail::fit_outside_mass(sample, kGroups, SerialExecutor());
  ASSERT_TRUE(mass);
  EXPECT_EQ(mass->groups(), kGroups);
  EXPECT_LT(mass->error().median, 1e-3);
  EXPECT_LT(mass->error().p99, 1e-2);
  for (std::size_t i = 0; i < 40; ++i)
    EXPECT_NEAR(mass->log_mass(sample.groups[i], sample.context(i)), sample.outside[i], 2e-2);
}

TEST(OutsideMass, ReportsWhatCannotBeLearned) {
  OutsideSample sample = linear_sample(4000);
  const Eigen::VectorXf noise = random_vector(4000, 3);
  for (std::size_t i = 0; i < sample.size(); ++i)
    sample.outside[i] += static_cast<double>(noise[static_cast<Eigen::Index>(i)]);
  const auto mass = detail::fit_outside_mass(sample, kGroups, SerialExecutor());
  ASSERT_TRUE(mass);
  EXPECT_GT(mass->error().median, 0.1);
  EXPECT_GT(mass->error().p99, mass->error().median);
}

TEST(OutsideMass, ItsErrorIsThatOfContextsThatAreHeldOut) {
  OutsideSample sample = linear_sample(4000);
  // The held-out runs lie about their masses: what is learned from the others cannot know.
  const detail::OutsideSplit split(sample);
  for (const std::size_t i : split.held_out) sample.outside[i] += 1.0;
  const auto mass = detail::fit_outside_mass(sample, kGroups, SerialExecutor());
  ASSERT_TRUE(mass);
  EXPECT_GT(mass->error().median, 0.1);
  EXPECT_LT(std::abs(mass->log_mass(0, sample.context(0)) - sample.outside[0]), 2e-2);
}

TEST(OutsideMass, SplitsASampleIntoRunsOnce) {
  OutsideSample sample = linear_sample(1000);
  sample.groups[7] = Candidates::no_group;
  const detail::OutsideSplit split(sample);
  EXPECT_EQ(split.fitted.size(), 599U);
  EXPECT_EQ(split.validated.size(), 200U);
  EXPECT_EQ(split.held_out.size(), 200U);
  EXPECT_EQ(split.held_out[39] - split.held_out[0], 39U) << "neighbours stay together";
}

TEST(OutsideMass, IsTheSameForEveryNumberOfThreads) {
  const OutsideSample sample = linear_sample(2000);
  const auto alone = detail::fit_outside_mass(sample, kGroups, SerialExecutor());
  const auto together = detail::fit_outside_mass(sample, kGroups, ThreadPool(3));
  ASSERT_TRUE(alone && together);
  EXPECT_EQ(alone->error().p99, together->error().p99);
  for (std::size_t g = 0; g < kGroups; ++g)
    EXPECT_EQ(alone->log_mass(g, sample.context(5)), together->log_mass(g, sample.context(5)));
}

TEST(OutsideMass, TooFewContextsTeachNothing) {
  EXPECT_FALSE(detail::fit_outside_mass(linear_sample(99), kGroups, SerialExecutor()));
  EXPECT_TRUE(detail::fit_outside_mass(linear_sample(100), kGroups, SerialExecutor()));
  EXPECT_FALSE(detail::fit_outside_mass(OutsideSample(RowMajorMatrix()), kGroups, SerialExecutor()));
  const SoftmaxLayer layer = random_layer(300, 8, 1);
  const auto contexts = clustered_contexts(99, 8, 4, 2);
  EXPECT_FALSE(L2S::train_kmeans(layer, contexts, {.clusters = 4, .budget = 20})->log_z_error());
}

TEST(OutsideMass, GroupsThatNoContextIsInTakeTheCommonModel) {
  OutsideSample sample = linear_sample(1000);
  for (std::size_t& group : sample.groups) group = 0;
  const auto mass = detail::fit_outside_mass(sample, 3, SerialExecutor());
  ASSERT_TRUE(mass);
  EXPECT_TRUE(std::isfinite(mass->log_mass(2, sample.context(0))));
  EXPECT_EQ(mass->log_mass(1, sample.context(0)), mass->log_mass(2, sample.context(0)));
}

/// Screens nothing out, and says that this is what contexts were to teach.
struct AllTokens {
  std::vector<TokenId> ids;

  Candidates screen(const Query& /*query*/, Workspace& /*workspace*/) const {
    return {.ids = ids, .group = 0};
  }
  std::string_view name() const { return "all tokens"; }
  std::size_t index_bytes() const { return 0; }
};

TEST(OutsideMass, CountsNothingWhereNoTokenIsOutside) {
  const SoftmaxLayer layer = random_layer(200, kDim, 1);
  AllTokens screener{std::vector<TokenId>(200)};
  std::iota(screener.ids.begin(), screener.ids.end(), 0);
  const ScreenedSoftmax<AllTokens> head(
      layer, screener, detail::fit_outside_mass(linear_sample(1000), kGroups, SerialExecutor()));
  ASSERT_TRUE(head.log_z_error());
  const Eigen::VectorXf h = random_vector(kDim, 4);
  const TopK answer = head.query(h, {.k = 3});
  EXPECT_EQ(answer.normalizer, Normalizer::candidates);
  EXPECT_NEAR(answer.log_z, Reference(layer, h).log_z, 1e-5);
}

/// A layer, and contexts to learn from and to ask.
struct World {
  SoftmaxLayer layer = random_layer(1500, 16, 1);
  RowMajorMatrix contexts = clustered_contexts(3000, 16, 12, 2);
  RowMajorMatrix train = contexts.topRows(2400);
  RowMajorMatrix test = contexts.bottomRows(600);
};

const World& world() {
  static const World made;
  return made;
}

std::vector<std::shared_ptr<const TopKSoftmax>> learned_heads() {
  const auto& [layer, contexts, train, test] = world();
  return {L2S::train_kmeans(layer, train, {.clusters = 12, .budget = 60}),
          Fgd::build(layer, train, {.ef_search = 40}),
          Shortlist::build(layer, train, {.top_frequent = 100}),
          RowClusters::build(layer, train, {.clusters = 60, .visited = 6}),
          WtaLsh::build(layer, train, {.hash = {.bands = 60}, .top_frequent = 50}),
          AdaptiveSoftmax::build(layer, train, {.head = 60, .tail_tiers = 30, .caution = 0.5}),
          GreedyMips::build(layer, train, {.budget = 100}),
          PcaMips::build(layer, train),
          LshMips::build(layer, train, {.tables = 16, .bits = 6}),
          WtaLshEach::build(layer, train, {.hash = {.bands = 60}})};
}

/// Of the heads' log Z, and of what it would be over the candidates alone.
TEST(OutsideMass, IsCountedByEveryBackendThatLearnsIt) {
  for (const auto& head : learned_heads()) {
    SCOPED_TRACE(head->name());
    ASSERT_TRUE(head->log_z_error());
    std::vector<double> errors;
    std::vector<double> without;
    for (Eigen::Index i = 0; i < world().test.rows(); ++i) {
      const Eigen::VectorXf h = world().test.row(i);
      const TopK answer = head->query(h);
      if (answer.normalizer == Normalizer::exact) continue;  // a list was too short
      ASSERT_EQ(answer.normalizer, Normalizer::learned);
      EXPECT_EQ(answer.log_z_low, answer.log_z);
      EXPECT_EQ(answer.log_z_high, answer.log_z);
      Workspace workspace;
      const auto found = head->candidates(h.data(), 16, {}, workspace);
      ASSERT_TRUE(found);
      double inside = -std::numeric_limits<double>::infinity();
      const Reference reference(world().layer, h);
      for (const TokenId id : found->ids)
        inside = kernels::log_add_exp(inside, reference.logits[static_cast<std::size_t>(id)]);
      EXPECT_GE(answer.log_z, inside - 1e-4);
      errors.push_back(std::abs(answer.log_z - reference.log_z));
      without.push_back(std::abs(inside - reference.log_z));
    }
    ASSERT_GT(errors.size(), 300U);
    const double median = detail::quantile(errors, 0.5);
    EXPECT_LT(median, 0.5 * detail::quantile(without, 0.5));
    EXPECT_LT(median, 2.0 * head->log_z_error()->median) << "what the index says holds for contexts to come";
    EXPECT_GT(median, 0.5 * head->log_z_error()->median);
    EXPECT_LT(detail::quantile(errors, 0.99), 3.0 * head->log_z_error()->p99);
  }
}

/// Whether an effort is beyond what the head can leave out.
bool scores_all(const TopKSoftmax& head, std::size_t effort) {
  Workspace workspace;
  const auto found = head.candidates(world().test.row(0).data(), 16, {.effort = effort}, workspace);
  return !found || found->everything;
}

TEST(OutsideMass, IsLeftOutWhereItWasNotLearned) {
  const Eigen::VectorXf h = world().test.row(0);
  TokenMask mask = TokenMask::all(1500);
  for (TokenId id = 0; id < 40; ++id) mask.forbid(id);
  for (const auto& head : learned_heads()) {
    SCOPED_TRACE(head->name());
    EXPECT_EQ(head->query(h, {.k = 2, .allowed = mask}).normalizer, Normalizer::candidates);
    EXPECT_EQ(head->query(h, {.k = 2, .effort = 45}).normalizer,
              scores_all(*head, 45) ? Normalizer::exact : Normalizer::candidates);
    EXPECT_EQ(head->query(h, {.k = 2, .probabilities = false}).normalizer, Normalizer::none);
    EXPECT_EQ(head->query(h, {.k = 2, .effort = QueryOptions::full_effort}).normalizer, Normalizer::exact);
  }
  const auto without =
      L2S::train_kmeans(world().layer, world().train, {.clusters = 12, .budget = 60, .outside_sample = 0});
  EXPECT_FALSE(without->log_z_error());
  EXPECT_EQ(without->query(h, {.k = 2}).normalizer, Normalizer::candidates);
  EXPECT_EQ(without->query(h, {.k = 2}).ids, learned_heads()[0]->query(h, {.k = 2}).ids);
}

TEST(OutsideMass, TellsNoErrorWhereTheUsualEffortIsAnother) {
  const auto& [layer, contexts, train, test] = world();
  const auto graph = Fgd::build(layer, train, {.ef_search = 40});
  EXPECT_TRUE(graph->log_z_error());
  graph->set_usual_effort(45);
  EXPECT_EQ(graph->query(test.row(0)).normalizer, Normalizer::candidates);
  EXPECT_FALSE(graph->log_z_error());
  const auto adaptive = AdaptiveSoftmax::build(layer, train, {.head = 60, .tail_tiers = 30, .caution = 0.5});
  EXPECT_TRUE(adaptive->log_z_error());
  adaptive->set_usual_effort(2);
  EXPECT_FALSE(adaptive->log_z_error());
}

TEST(OutsideMass, LosesTheFewTokensThatAMaskForbids) {
  TokenMask mask = TokenMask::all(1500);
  for (Eigen::Index i = 0; i < 3; ++i) mask.forbid(Exact(world().layer).query(world().test.row(i)).ids[0]);
  for (const auto& head : learned_heads()) {
    SCOPED_TRACE(head->name());
    std::vector<double> errors;
    Workspace workspace;
    for (Eigen::Index i = 0; i < world().test.rows(); ++i) {
      const Eigen::VectorXf h = world().test.row(i);
      const QueryOptions options = {.k = 2, .allowed = mask};
      const TopK answer = head->query(h, options);
      if (answer.normalizer == Normalizer::exact) continue;
      ASSERT_EQ(answer.normalizer, Normalizer::learned);
      const auto allows = [&mask](TokenId id) { return mask.allows(id); };
      const Reference reference = Reference(world().layer, h).edited(allows, {});
      errors.push_back(std::abs(answer.log_z - reference.log_z));

      const auto found = head->candidates(h.data(), 16, options, workspace);
      ASSERT_TRUE(found);
      double inside = 0.0;
      for (const TokenId id : found->ids) {
        if (mask.allows(id)) inside += std::exp(reference.logits[static_cast<std::size_t>(id)]);
      }
      EXPECT_NEAR(kernels::log_add_exp(std::log(inside), found->outside), answer.log_z, 1e-5);
    }
    ASSERT_GT(errors.size(), 300U);
    EXPECT_LT(detail::quantile(errors, 0.5), 2.0 * head->log_z_error()->median);
    EXPECT_LT(detail::quantile(errors, 0.99), 3.0 * head->log_z_error()->p99);
  }
}

TEST(OutsideMass, GivesTokensThatAreNoCandidatesTheirProbability) {
  const auto head = learned_heads()[0];
  Workspace workspace;
  for (Eigen::Index i = 0; i < 20; ++i) {
    const Eigen::VectorXf h = world().test.row(i);
    const TopK top = head->query(h, {.k = 1});
    const float best = top.logits[0];
    EXPECT_DOUBLE_EQ(log_prob_by(*head, h.data(), 16, top.ids[0], workspace),
                     static_cast<double>(best) - top.log_z);
    const TokenId last = Exact::make(world().layer)->query(h, {.k = 1500}).ids.back();
    EXPECT_NEAR(log_prob_by(*head, h.data(), 16, last, workspace),
                exact_log_prob(world().layer, h.data(), 16, last, workspace), 0.5);
  }
  EXPECT_THROW(log_prob_by(*head, world().test.row(0).data(), 16, 1500, workspace), std::invalid_argument);
}

}  // namespace
}  // namespace topksoftmax
