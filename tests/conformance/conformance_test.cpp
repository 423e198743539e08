// SPDX-License-Identifier: Apache-2.0
//
// What every backend must do, whatever its method.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <new>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "conformance/backends.hpp"
#include "support/allocations.hpp"
#include "support/by_bounds.hpp"
#include "support/executors.hpp"
#include "support/layers.hpp"
#include "support/reference.hpp"
#include "support/same_answers.hpp"
#include "support/statistics.hpp"
#include "support/whole_numbers.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/parallel/thread_pool.hpp"
#include "topksoftmax/rows/q8_0_copy.hpp"

namespace topksoftmax {
namespace {

using testing::Backend;
using testing::clustered_contexts;
using testing::expect_same;
using testing::random_layer;
using testing::random_vector;
using testing::Reference;

constexpr Eigen::Index kVocab = 700;
constexpr Eigen::Index kDim = 40;

/// A layer, contexts to learn from and contexts to ask, the same for all tests.
struct World {
  SoftmaxLayer layer = random_layer(kVocab, kDim, 1);
  RowMajorMatrix train = clustered_contexts(600, kDim, 12, 2);
  RowMajorMatrix test = clustered_contexts(40, kDim, 12, 2).bottomRows(20);
};

const World& world() {
  static const World made;
  return made;
}

class Conformance : public ::testing::TestWithParam<Backend> {
 protected:
  std::unique_ptr<TopKSoftmax> make(const SoftmaxLayer& layer, const RowMajorMatrix& contexts) const {
    return GetParam().make(layer, contexts);
  }

  /// The backend over world(), built once for the suite.
  const TopKSoftmax& head() const {
    static std::map<std::string, std::unique_ptr<TopKSoftmax>> built;
    auto& backend = built[GetParam().name];
    if (!backend) backend = make(world().layer, world().train);
    return *backend;
  }

  static Eigen::VectorXf context(Eigen::Index i) { return world().test.row(i % world().test.rows()); }
};

TEST_P(Conformance, HasItsNameAndKeepsTheLayer) {
  EXPECT_EQ(head().name(), GetParam().description.name);
  EXPECT_EQ(head().layer().rows().data, world().layer.rows().data);
  EXPECT_EQ(head().layer().vocab(), static_cast<std::size_t>(kVocab));
}

TEST_P(Conformance, EveryLogitIsTheExactDotProduct) {
  const auto exact = Exact::make(world().layer);
  for (Eigen::Index i = 0; i < 20; ++i) {
    const TopK answer = head().query(context(i), {.k = 5});
    const TopK all = exact->query(context(i), {.k = static_cast<std::size_t>(kVocab)});
    const Reference reference(world().layer, context(i));
    ASSERT_EQ(answer.size(), 5U);
    for (std::size_t n = 0; n < answer.size(); ++n) {
      const auto token = static_cast<std::size_t>(answer.ids[n]);
      const auto at = std::find(all.ids.begin(), all.ids.end(), answer.ids[n]) - all.ids.begin();
      EXPECT_EQ(answer.logits[n], all.logits[static_cast<std::size_t>(at)])
          << "bit for bit, as Exact computes it";
      EXPECT_NEAR(answer.logits[n], reference.logits[token], reference.tolerance(token, kDim));
    }
  }
}

TEST_P(Conformance, TokensAreDistinctAndInOrder) {
  for (const std::size_t k : {1U, 2U, 5U, 100U, 699U, 700U, 701U, 100000U}) {
    const TopK answer = head().query(context(3), {.k = k});
    ASSERT_EQ(answer.size(), std::min<std::size_t>(k, kVocab));
    ASSERT_EQ(answer.logits.size(), answer.size());
    EXPECT_EQ(std::set<TokenId>(answer.ids.begin(), answer.ids.end()).size(), answer.size());
    for (std::size_t n = 1; n < answer.size(); ++n) {
      EXPECT_TRUE(ranks_before({answer.logits[n - 1], answer.ids[n - 1]}, {answer.logits[n], answer.ids[n]}));
    }
  }
}

/// The answer lists the best tokens of a reference, as far as float32 can tell them: its logits are theirs,
/// and no other token is better than the last one.
void expect_best_of(const Reference& reference, const TopK& answer) {
  const auto tolerance = [&](std::size_t token) { return reference.tolerance(token, kDim); };
  std::vector<bool> is_listed(reference.logits.size(), false);
  for (std::size_t n = 0; n < answer.size(); ++n) {
    const auto token = static_cast<std::size_t>(answer.ids[n]);
    is_listed[token] = true;
    ASSERT_NEAR(answer.logits[n], reference.logits[token], tolerance(token));
  }
  const auto last = static_cast<double>(answer.logits.back());
  for (std::size_t token = 0; token < is_listed.size(); ++token) {
    if (is_listed[token]) continue;
    ASSERT_LE(reference.logits[token], last + tolerance(token)) << "token " << token;
  }
}

/// Whether answers are exact without a full scan: proven by bounds.
bool answers_by_bounds(const Backend& backend) {
  const BackendTraits& traits = backend.description.traits;
  return traits.exact && !traits.scans_all;
}

TEST_P(Conformance, CertifiedAnswersAreTheExactTopK) {
  const bool is_exact = GetParam().description.traits.exact;
  EXPECT_LE(head().certifies(), is_exact);
  const auto exact = Exact::make(world().layer);
  testing::ByBounds by_bounds;
  for (Eigen::Index i = 0; i < 20; ++i) {
    const Reference reference(world().layer, context(i));
    for (const std::size_t k : {1U, 5U, 40U}) {
      const TopK truth = exact->query(context(i), {.k = k});
      const TopK answer = head().query(context(i), {.k = k});
      EXPECT_EQ(answer.certified, answer.confidence == 1.0);
      by_bounds.count(answer, kVocab);
      if (head().certifies()) {
        EXPECT_TRUE(answer.certified);
      }
      if (is_exact) {
        EXPECT_GT(answer.confidence, 0.99) << "an exact backend whose settings give the proof up";
      }
      if (answer.certified || is_exact) {
        expect_best_of(reference, answer);
        EXPECT_EQ(answer.ids, truth.ids) << "of equal logits too, and to the last bit";
        EXPECT_EQ(answer.logits, truth.logits);
      }
      const TopK full = head().query(context(i), {.k = k, .effort = QueryOptions::full_effort});
      if (GetParam().description.traits.exhaustible) {
        expect_best_of(reference, full);
        EXPECT_EQ(full.ids, truth.ids);
        EXPECT_EQ(full.logits, truth.logits);
      }
    }
  }
  if (answers_by_bounds(GetParam())) by_bounds.expect_mostly_by_bounds();
}

/// What an answer of k tokens says of log Z is true.
void expect_true_log_z(const TopKSoftmax& head, const SoftmaxLayer& layer, const Eigen::VectorXf& h,
                       std::size_t k) {
  const TopK answer = head.query(h, {.k = k});
  const Reference reference(layer, h);
  ASSERT_NE(answer.normalizer, Normalizer::none);
  EXPECT_LE(answer.log_z_low, answer.log_z);
  EXPECT_LE(answer.log_z, answer.log_z_high);
  switch (answer.normalizer) {
    case Normalizer::exact:
      EXPECT_NEAR(answer.log_z, reference.log_z, 1e-4);
      break;
    case Normalizer::candidates:
      EXPECT_LE(answer.log_z, reference.log_z + 1e-4) << "a sum over fewer tokens";
      break;
    case Normalizer::interval:
      EXPECT_LE(answer.log_z_low, reference.log_z + 1e-6);
      EXPECT_GE(answer.log_z_high, reference.log_z - 1e-6);
      break;
    case Normalizer::learned: {
      ASSERT_TRUE(head.log_z_error());
      Workspace workspace;
      const std::vector<float> values(h.begin(), h.end());
      const auto found = head.candidates(values.data(), values.size(), {.k = k}, workspace);
      ASSERT_TRUE(found);
      double inside = 0.0;
      for (const TokenId id : found->ids) inside += std::exp(reference.logits[static_cast<std::size_t>(id)]);
      EXPECT_TRUE(std::isfinite(answer.log_z));
      EXPECT_GE(answer.log_z, std::log(inside) - 1e-4) << "at least the candidates";
      break;
    }
    case Normalizer::low_rank:
    case Normalizer::none:
      break;
  }
  EXPECT_LE(answer.log_prob(0), 1e-6);
}

TEST_P(Conformance, TheNormalizerSaysWhatItMeans) {
  for (Eigen::Index i = 0; i < 20; ++i) {
    expect_true_log_z(head(), world().layer, context(i), 3);
    const TopK answer = head().query(context(i), {.k = 3});
    const TopK ids_only = head().query(context(i), {.k = 3, .probabilities = false});
    EXPECT_EQ(ids_only.ids, answer.ids);
    EXPECT_EQ(ids_only.normalizer, Normalizer::none);
    EXPECT_TRUE(std::isnan(ids_only.log_z));
  }
}

/// The tokens that are scored for `h`, rising; none where the backend has no candidates apart from its
/// answer.
std::vector<TokenId> searched(const TopKSoftmax& head, const Eigen::VectorXf& h, std::size_t k) {
  Workspace workspace;
  const auto found = head.candidates(h.data(), static_cast<std::size_t>(h.size()), {.k = k}, workspace);
  if (!found) return {};
  std::vector<TokenId> ids(found->ids.begin(), found->ids.end());
  std::sort(ids.begin(), ids.end());
  return ids;
}

// A mask that forbids all but some of what is proposed without it.
TEST_P(Conformance, CandidatesTellWhereAnAnswerIsFromAllAllowedTokens) {
  constexpr std::size_t k = 5;
  for (Eigen::Index i = 0; i < 10; ++i) {
    const std::vector<TokenId> proposed = searched(head(), context(i), k);
    for (const std::size_t kept : {std::size_t{2}, k}) {
      const bool most_are_proposed = proposed.size() > kVocab / 2;  // few would be allowed
      if (proposed.size() < kept || most_are_proposed) continue;
      TokenMask mask = TokenMask::all(kVocab);
      for (std::size_t j = kept; j < proposed.size(); ++j) mask.forbid(proposed[j]);
      const QueryOptions options = {.k = k, .allowed = mask};
      const TopK answer = head().query(context(i), options);
      Workspace workspace;
      const Eigen::VectorXf h = context(i);
      const auto found = head().candidates(h.data(), static_cast<std::size_t>(h.size()), options, workspace);
      ASSERT_TRUE(found);
      EXPECT_EQ(found->everything, answer.work.fell_back) << kept;
    }
  }
}

TEST_P(Conformance, AScaleAndASoftCapLeaveIdsAndChangeProbabilities) {
  const LogitTransform transforms[] = {{.scale = 0.25F}, {.scale = 1.5F, .soft_cap = 12.0F}};
  const auto is_allowed = [](TokenId id) { return id % 3 == 0; };
  TokenMask mask(kVocab);
  for (TokenId id = 0; id < kVocab; ++id) {
    if (is_allowed(id)) mask.allow(id);
  }
  const std::vector<TokenBias> bias = {{3, 0.5F}, {60, -0.25F}};
  for (const LogitTransform& transform : transforms) {
    const SoftmaxLayer layer = world().layer.with(transform);
    const auto changed = make(layer, world().train);
    for (Eigen::Index i = 0; i < 20; ++i) {
      const TopK answer = changed->query(context(i), {.k = 5});
      // A backend that learns from logits may learn other candidates where the logits are others.
      if (searched(*changed, context(i), 5) == searched(head(), context(i), 5)) {
        EXPECT_EQ(answer.ids, head().query(context(i), {.k = 5}).ids);
      }
      const Reference reference(layer, context(i));
      for (std::size_t n = 0; n < answer.size(); ++n) {
        const auto token = static_cast<std::size_t>(answer.ids[n]);
        EXPECT_NEAR(answer.logits[n], reference.logits[token], reference.tolerance(token, kDim));
      }
      if (answer.certified) expect_best_of(reference, answer);
      expect_true_log_z(*changed, layer, context(i), 5);
      // A query's biases are added behind the transform.
      const TopK among = changed->query(context(i), {.k = 5, .allowed = mask, .logit_bias = bias});
      const Reference edited = reference.edited(is_allowed, bias);
      if (among.certified) expect_best_of(edited, among);
      if (among.normalizer == Normalizer::interval || among.normalizer == Normalizer::exact) {
        EXPECT_LE(among.log_z_low, edited.log_z + 1e-4);
        EXPECT_GE(among.log_z_high, edited.log_z - 1e-4);
      }
    }
  }
}

TEST_P(Conformance, TiesAtTheSoftCapGoToTheLowerId) {
  // tanh(1/0.1) is 1 in floats: every token with a product above 0 has the cap itself for a logit.
  const testing::WholeNumbers numbers(kVocab, 12, 7);
  const SoftmaxLayer layer = numbers.layer().with({.soft_cap = 0.1F});
  const auto saturated = make(layer, numbers.contexts());
  for (Eigen::Index i = 0; i < 20; ++i) {
    std::vector<TokenId> capped;
    for (const auto& token : numbers.ranking(i)) {
      if (token.logit > 0) capped.push_back(token.id);
    }
    std::sort(capped.begin(), capped.end());
    ASSERT_GT(capped.size(), 5U);
    const TopK answer = saturated->query(numbers.contexts().row(i), {.k = 5});
    ASSERT_EQ(answer.size(), 5U);
    for (std::size_t n = 0; n < 5; ++n) {
      if (answer.certified) {
        EXPECT_EQ(answer.ids[n], capped[n]);
      }
      const bool is_capped = std::binary_search(capped.begin(), capped.end(), answer.ids[n]);
      EXPECT_EQ(answer.logits[n] == 0.1F, is_capped);
      if (n > 0 && is_capped) {
        EXPECT_GT(answer.ids[n], answer.ids[n - 1]);
      }
    }
    expect_true_log_z(*saturated, layer, numbers.contexts().row(i), 5);
  }
}

TEST_P(Conformance, BadQueriesThrowAndLeaveTheAnswerAlone) {
  Workspace workspace;
  TopK answer = head().query(context(0), {.k = 2});
  const TopK before = answer;
  const Eigen::VectorXf good = context(0);
  Eigen::VectorXf nan = good;
  nan[kDim - 1] = std::numeric_limits<float>::quiet_NaN();
  Eigen::VectorXf infinite = good;
  infinite[0] = -std::numeric_limits<float>::infinity();
  const Eigen::VectorXf shorter = good.head(kDim - 1);
  const std::vector<std::uint64_t> small_mask(static_cast<std::size_t>(kVocab) / 64);
  const std::vector<TokenBias> unordered = {{7, 1.0F}, {3, 1.0F}};
  const std::vector<TokenBias> twice = {{7, 1.0F}, {7, 1.0F}};
  const std::vector<TokenBias> outside = {{static_cast<TokenId>(kVocab), 1.0F}};
  const std::vector<TokenBias> not_finite = {{7, std::numeric_limits<float>::infinity()}};
  const auto refuses = [&](const Eigen::VectorXf& h, const QueryOptions& options) {
    EXPECT_THROW(head().query(h, options, workspace, answer), std::invalid_argument);
  };
  refuses(nan, {.k = 2});
  refuses(infinite, {.k = 2});
  refuses(shorter, {.k = 2});
  refuses(good, {.k = 0});
  refuses(good, {.k = 2, .allowed = small_mask});
  refuses(good, {.k = 2, .logit_bias = unordered});
  refuses(good, {.k = 2, .logit_bias = twice});
  refuses(good, {.k = 2, .logit_bias = outside});
  refuses(good, {.k = 2, .logit_bias = not_finite});
  expect_same(answer, before);

  std::vector<Workspace> workspaces(1);
  std::vector<TopK> answers(static_cast<std::size_t>(world().test.rows()), before);
  RowMajorMatrix H = world().test;
  H(H.rows() - 1, 0) = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THROW(head().query_batch(H, {.k = 2}, workspaces, answers), std::invalid_argument);
  for (const TopK& untouched : answers) expect_same(untouched, before);
  EXPECT_THROW(head().query_batch(world().test, {.k = 2}, workspaces, std::span(answers).first(3)),
               std::invalid_argument);
  EXPECT_THROW(head().query_batch(world().test, {.k = 2}, {}, answers), std::invalid_argument);

  const auto refuses_each = [&](const Contexts& contexts, std::vector<QueryOptions> options,
                                const std::string& why) {
    try {
      head().query_each(contexts, options, workspaces, answers);
      ADD_FAILURE() << "should be refused: " << why;
    } catch (const std::invalid_argument& problem) {
      EXPECT_NE(std::string(problem.what()).find(why), std::string::npos) << problem.what();
    }
    for (const TopK& untouched : answers) expect_same(untouched, before);
  };
  std::vector<QueryOptions> each(answers.size(), {.k = 2});
  refuses_each(Contexts::of(H), each, "context " + std::to_string(answers.size() - 1) + ": ");
  refuses_each(Contexts::of(world().test), {each.begin() + 1, each.end()}, "options; they must be as many");
  each[3].logit_bias = unordered;
  refuses_each(Contexts::of(world().test), each, "context 3: ");
  each[3] = {.k = 0};
  refuses_each(Contexts::of(world().test), each, "context 3: query: k is 0");
  each[3].k = 1;
  EXPECT_THROW(head().query_each(Contexts::of(world().test), each, {}, answers), std::invalid_argument);
  EXPECT_THROW(head().query_each(Contexts::of(world().test), each, workspaces, std::span(answers).first(3)),
               std::invalid_argument);
}

/// An answer is what integers say it must be: all of it where that is proven, and otherwise its tokens'
/// logits and their order.
void expect_right(const TopK& answer, const std::vector<testing::WholeNumbers::Token>& ranking,
                  std::size_t k) {
  ASSERT_EQ(answer.size(), std::min(k, ranking.size()));
  for (std::size_t n = 0; n < answer.size(); ++n) {
    const auto same = [&](const auto& token) { return token.id == answer.ids[n]; };
    const auto found = answer.certified ? ranking.begin() + static_cast<std::ptrdiff_t>(n)
                                        : std::find_if(ranking.begin(), ranking.end(), same);
    ASSERT_TRUE(found != ranking.end()) << "token " << answer.ids[n] << " is not allowed";
    ASSERT_EQ(answer.ids[n], found->id) << "place " << n;
    ASSERT_EQ(answer.logits[n], static_cast<float>(found->logit));
    if (n == 0) continue;
    const bool in_order = answer.logits[n] < answer.logits[n - 1] ||
                          (answer.logits[n] == answer.logits[n - 1] && answer.ids[n] > answer.ids[n - 1]);
    ASSERT_TRUE(in_order) << "place " << n;
  }
  if (ranking.empty()) return;
  const double log_z = testing::WholeNumbers::log_z(ranking);
  if (answer.normalizer == Normalizer::exact) {
    EXPECT_NEAR(answer.log_z, log_z, 1e-5);
  }
  if (answer.normalizer == Normalizer::interval) {
    EXPECT_LE(answer.log_z_low, log_z + 1e-6);
    EXPECT_GE(answer.log_z_high, log_z - 1e-6);
  }
}

TEST_P(Conformance, TiesGoToTheLowerId) {
  const testing::WholeNumbers numbers(kVocab, 12, 3);
  const auto whole = make(numbers.layer(), numbers.contexts());
  for (Eigen::Index i = 0; i < 20; ++i) {
    const auto ranking = numbers.ranking(i);
    for (const std::size_t k : {1U, 5U, 40U, 700U}) {
      expect_right(whole->query(numbers.contexts().row(i), {.k = k}), ranking, k);
    }
  }
}

TEST_P(Conformance, MasksActInsideTheSearch) {
  testing::WholeNumbers numbers(kVocab, 12, 4);
  const auto whole = make(numbers.layer(), numbers.contexts());
  for (const std::size_t allowed : {0U, 1U, 3U, 10U, 80U, 300U, 699U}) {
    TokenMask mask(kVocab);
    std::vector<bool> is_allowed(kVocab);
    for (std::size_t n = 0; n < allowed; ++n) {
      const std::size_t id = (n * 101 + 7) % kVocab;
      mask.allow(static_cast<TokenId>(id));
      is_allowed[id] = true;
    }
    numbers.allows = [&](int id) { return is_allowed[static_cast<std::size_t>(id)]; };
    for (Eigen::Index i = 0; i < 6; ++i) {
      const TopK answer = whole->query(numbers.contexts().row(i), {.k = 5, .allowed = mask});
      expect_right(answer, numbers.ranking(i), 5);
      if (allowed <= 10) {
        EXPECT_TRUE(answer.certified) << "few tokens are simply scored";
      }
    }
  }
}

TEST_P(Conformance, BiasesActInsideTheSearch) {
  testing::WholeNumbers numbers(kVocab, 12, 5);
  const auto whole = make(numbers.layer(), numbers.contexts());
  for (Eigen::Index i = 0; i < 20; ++i) {
    numbers.bias = [](int) { return 0; };
    const auto plain = numbers.ranking(i);
    const int last = plain.back().id;  // no screener would propose it
    const int first = plain.front().id;
    const int middle = plain[300].id;
    numbers.bias = [=](int id) { return id == last ? 1000 : id == first ? -1000 : id == middle ? 5 : 0; };
    std::vector<TokenBias> bias = {{last, 1000.0F}, {first, -1000.0F}, {middle, 5.0F}};
    std::sort(bias.begin(), bias.end(), [](const TokenBias& a, const TokenBias& b) { return a.id < b.id; });
    const TopK answer = whole->query(numbers.contexts().row(i), {.k = 4, .logit_bias = bias});
    expect_right(answer, numbers.ranking(i), 4);
    EXPECT_EQ(answer.ids[0], last);
    EXPECT_EQ(std::count(answer.ids.begin(), answer.ids.end(), first), 0);
  }
}

TEST_P(Conformance, MasksAndBiasesActTogether) {
  testing::WholeNumbers numbers(kVocab, 12, 6);
  const auto whole = make(numbers.layer(), numbers.contexts());
  TokenMask mask(kVocab);
  std::vector<TokenBias> bias;
  for (TokenId id = 0; id < static_cast<TokenId>(kVocab); ++id) {
    if (id % 3 != 1) mask.allow(id);
    if (id % 50 == 2) bias.push_back({id, id % 100 == 2 ? 6.0F : -6.0F});  // some of them forbidden
  }
  numbers.allows = [](int id) { return id % 3 != 1; };
  numbers.bias = [](int id) { return id % 50 != 2 ? 0 : id % 100 == 2 ? 6 : -6; };
  for (Eigen::Index i = 0; i < 20; ++i) {
    const auto ranking = numbers.ranking(i);
    for (const std::size_t k : {1U, 5U, 40U}) {
      const QueryOptions options = {.k = k, .allowed = mask, .logit_bias = bias};
      expect_right(whole->query(numbers.contexts().row(i), options), ranking, k);
    }
  }
}

TEST_P(Conformance, NoLogitIsAboveItsUpperBound) {
  const TopKSoftmax& head = this->head();
  std::vector<TokenId> ids(kVocab);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<float> bounds(ids.size());
  std::vector<float> logits(ids.size());
  const TokenBias bias[] = {{7, 5.0F}};
  Workspace workspace;
  for (const QueryOptions& options : {QueryOptions{}, QueryOptions{.logit_bias = bias}}) {
    for (Eigen::Index q = 0; q < world().test.rows(); ++q) {
      const std::span<const float> h(world().test.row(q).data(), kDim);
      head.upper_bounds(h, ids, options, workspace, bounds);
      head.logits_of(h, ids, options, workspace, logits);
      for (std::size_t i = 0; i < ids.size(); ++i) ASSERT_GE(bounds[i], logits[i]) << "token " << i;
    }
  }
}

TEST_P(Conformance, ADeviationLiesWithinItsBounds) {
  const TopKSoftmax& head = this->head();
  const TokenBias bias[] = {{7, 5.0F}};
  Workspace workspace;
  for (const QueryOptions& options : {QueryOptions{}, QueryOptions{.logit_bias = bias}}) {
    for (Eigen::Index q = 0; q < world().test.rows(); ++q) {
      const std::span<const float> h(world().test.row(q).data(), kDim);
      const std::optional<LogitDeviation> found = head.logit_deviation(h, options, workspace);
      if (!found) continue;
      const std::span<const float> logits = head.logits(world().test.row(q).transpose(), options, workspace);
      const double deviation = std::sqrt(testing::LogitMoments(logits).variance);
      ASSERT_LE(found->low, deviation);
      ASSERT_GE(found->high, deviation);
    }
  }
}

TEST_P(Conformance, NoTokenThatReachesALogitIsMissed) {
  const TopKSoftmax& head = this->head();
  std::vector<TokenId> ids(kVocab);
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<float> logits(ids.size());
  const TokenBias bias[] = {{7, 5.0F}};
  Workspace workspace;
  BoundedTokens tokens;
  for (const QueryOptions& options : {QueryOptions{}, QueryOptions{.logit_bias = bias}}) {
    for (Eigen::Index q = 0; q < world().test.rows(); ++q) {
      const std::span<const float> h(world().test.row(q).data(), kDim);
      head.logits_of(h, ids, options, workspace, logits);
      std::vector<float> ranked = logits;
      std::nth_element(ranked.begin(), ranked.begin() + 10, ranked.end(), std::greater<>());
      if (!head.tokens_reaching(h, ranked[10], options, workspace, tokens)) continue;
      std::vector<float> most(kVocab, -std::numeric_limits<float>::infinity());
      for (std::size_t i = 0; i < tokens.ids.size(); ++i) {
        most[static_cast<std::size_t>(tokens.ids[i])] = tokens.most[i];
      }
      for (std::size_t i = 0; i < ids.size(); ++i) {
        if (logits[i] >= ranked[10]) {
          ASSERT_GE(most[i], logits[i]) << "token " << i;
        }
      }
    }
  }
}

TEST_P(Conformance, AskedAgainForTheSameContextItAnswersAlike) {
  const TopKSoftmax& head = this->head();
  Workspace workspace;
  TopK answer;
  for (Eigen::Index q = 0; q + 1 < world().test.rows(); ++q) {
    head.query(world().test.row(q), {.k = 5}, workspace, answer);
    const TopK more = head.query(world().test.row(q), {.k = 20});
    head.query(world().test.row(q), {.k = 20, .same_context = true}, workspace, answer);
    expect_same(answer, more);
    // Where that is not true, it does no harm.
    const TopK other = head.query(world().test.row(q + 1), {.k = 20});
    head.query(world().test.row(q + 1), {.k = 20, .same_context = true}, workspace, answer);
    expect_same(answer, other);
  }
}

TEST_P(Conformance, UnusualContextsAreAnswered) {
  for (const float scale : {0.0F, 1e-42F, 1e-30F, 1e30F}) {
    const TopK answer = head().query(context(2) * scale, {.k = 7});
    ASSERT_EQ(answer.size(), 7U);
    EXPECT_TRUE(std::isfinite(answer.log_z)) << scale;
    for (const float logit : answer.logits) EXPECT_TRUE(std::isfinite(logit));
  }
  for (unsigned seed = 0; seed < 20; ++seed) {  // far from the training contexts
    EXPECT_EQ(head().query(random_vector(kDim, seed, 30.0F), {.k = 7}).size(), 7U);
  }
}

TEST_P(Conformance, SmallLayersWork) {
  for (const Eigen::Index vocab : {1, 2, 3, 65}) {
    for (const Eigen::Index dim : {1, 7}) {
      const SoftmaxLayer layer = random_layer(vocab, dim, 4);
      const RowMajorMatrix contexts = clustered_contexts(50, dim, 3, 5);
      const auto small = make(layer, contexts);
      const TopK answer = small->query(contexts.row(0), {.k = 2});
      ASSERT_EQ(answer.size(), static_cast<std::size_t>(std::min<Eigen::Index>(vocab, 2)));
      if (vocab == 1) {
        EXPECT_NEAR(answer.log_prob(0), 0.0, 1e-6);
      }
    }
  }
}

TEST_P(Conformance, LayersWithoutBiasAndWithEqualRowsWork) {
  RowMajorMatrix W = RowMajorMatrix::Ones(90, 6);
  W.row(50) *= 2.0F;
  const SoftmaxLayer layer = SoftmaxLayer::borrow(W);
  const RowMajorMatrix contexts = clustered_contexts(60, 6, 2, 5).cwiseAbs();
  const auto equal = make(layer, contexts);
  const TopK answer = equal->query(contexts.row(0), {.k = 4, .effort = QueryOptions::full_effort});
  if (GetParam().description.traits.exhaustible || GetParam().description.traits.exact) {
    EXPECT_EQ(answer.ids, (std::vector<TokenId>{50, 0, 1, 2}));
  }
}

TEST_P(Conformance, BlocksOfWeightsGiveTheAnswersOfTheirFloats) {
  const SoftmaxLayer blocks = q8_0_copy(random_layer(400, 64, 5));
  const SoftmaxLayer floats = SoftmaxLayer::own(blocks.weights(), blocks.biases());
  const RowMajorMatrix train = clustered_contexts(300, 64, 8, 6);
  const auto of_blocks = make(blocks, train);
  const auto of_floats = make(floats, train);
  for (Eigen::Index i = 0; i < 10; ++i) {
    const Eigen::VectorXf h = train.row(i * 29);
    const TopK answer = of_blocks->query(h, {.k = 5});
    const TopK expected = of_floats->query(h, {.k = 5});
    EXPECT_EQ(answer.ids, expected.ids);
    EXPECT_EQ(answer.logits, expected.logits);
    expect_true_log_z(*of_blocks, blocks, h, 5);
  }
}

TEST_P(Conformance, BatchesAndThreadsGiveTheSameAnswers) {
  const RowMajorMatrix& H = world().test;
  for (const std::size_t threads : {1U, 2U, 5U}) {
    for (const Eigen::Index batch : {1, 2, 7, 20}) {
      std::vector<Workspace> workspaces(threads);
      std::vector<TopK> answers(static_cast<std::size_t>(batch));
      head().query_batch(H.topRows(batch), {.k = 5}, workspaces, answers);
      for (Eigen::Index q = 0; q < batch; ++q) {
        const TopK alone = head().query(context(q), {.k = 5});
        const TopK& answer = answers[static_cast<std::size_t>(q)];
        if (!GetParam().description.traits.shares_batches) {
          expect_same(answer, alone);
        } else {  // more candidates may only lift the answer
          for (std::size_t n = 0; n < 5; ++n) EXPECT_GE(answer.logits[n], alone.logits[n]);
        }
      }
    }
  }
}

TEST_P(Conformance, ContextsWithOptionsOfTheirOwnGetTheSameAnswers) {
  TokenMask third(kVocab);
  for (TokenId id = 0; id < kVocab; id += 3) third.allow(id);
  TokenMask tenth(kVocab);
  for (TokenId id = 5; id < kVocab; id += 10) tenth.allow(id);
  TokenMask few(kVocab);
  for (const TokenId id : {3, 64, 699}) few.allow(id);
  const std::vector<TokenBias> biases = {{0, 3.0F}, {63, -1.0F}, {64, 2.0F}, {500, 4.0F}};
  const std::vector<QueryOptions> options = {{.k = 5},
                                             {.k = 1, .allowed = third},
                                             {.k = 9, .allowed = third, .logit_bias = biases},
                                             {.k = 5, .logit_bias = biases, .probabilities = false},
                                             {.k = 5, .allowed = few},
                                             {.k = 400},
                                             {.k = 5, .log_z_tolerance = 0.0},
                                             {.k = 7, .allowed = tenth},
                                             {.k = 5, .effort = QueryOptions::full_effort},
                                             {.k = 3, .probabilities = false}};
  for (const std::size_t threads : {1U, 2U, 5U}) {
    for (const std::size_t batch : {1U, 2U, 7U, 20U}) {
      std::vector<QueryOptions> asked;
      for (std::size_t q = 0; q < batch; ++q) asked.push_back(options[(q + batch) % options.size()]);
      const RowMajorMatrix H = world().test.topRows(static_cast<Eigen::Index>(batch));
      std::vector<Workspace> workspaces(threads);
      std::vector<TopK> answers(batch);
      head().query_each(Contexts::of(H), asked, workspaces, answers);
      std::vector<TokenId> ids(batch * 400);
      std::vector<double> log_z(batch);
      const FlatAnswers flat = {.ids = ids.data(), .log_z = log_z.data()};
      head().query_each(Contexts::of(H), asked, workspaces, flat);
      const std::size_t places = std::ranges::max(asked, {}, &QueryOptions::k).k;
      for (std::size_t q = 0; q < batch; ++q) {
        SCOPED_TRACE("context " + std::to_string(q) + " of " + std::to_string(batch));
        const TopK alone = head().query(context(static_cast<Eigen::Index>(q)), asked[q]);
        expect_same(answers[q], alone);
        const TokenId* const of_flat = ids.data() + q * places;
        EXPECT_TRUE(std::equal(alone.ids.begin(), alone.ids.end(), of_flat));
        EXPECT_EQ(std::count(of_flat, of_flat + places, TokenId{-1}),
                  static_cast<std::ptrdiff_t>(places - alone.size()));
        EXPECT_TRUE(testing::same(log_z[q], alone.log_z));
      }
      const std::span<const float> logits = head().logits_each(Contexts::of(H), asked, workspaces);
      ASSERT_EQ(logits.size(), batch * kVocab);
      Workspace another;
      for (std::size_t q = 0; q < batch; ++q) {
        const RowMajorMatrix h = H.row(static_cast<Eigen::Index>(q));
        const std::span<const float> alone = head().logits_batch(h, asked[q], another);
        EXPECT_TRUE(std::ranges::equal(alone, logits.subspan(q * kVocab, kVocab))) << q;
      }
    }
  }
  EXPECT_TRUE(head().query_each(Contexts::none(kDim), {}).empty());
}

TEST_P(Conformance, OneQueryOnManyThreadsGivesTheSameAnswer) {
  // Large enough for its work to be shared: megabytes of weights.
  const SoftmaxLayer layer = random_layer(9000, 96, 21);
  const auto large = make(layer, clustered_contexts(300, 96, 10, 22));
  const ThreadPool pool(3);
  const testing::ReversedExecutor own(2);
  std::vector<Workspace> workspaces(3);
  Workspace alone;
  const RowMajorMatrix contexts = clustered_contexts(6, 96, 10, 22);
  for (Eigen::Index i = 0; i < contexts.rows(); ++i) {
    const Eigen::VectorXf h = contexts.row(i);
    for (const std::size_t k : {std::size_t{1}, std::size_t{7}, std::size_t{400}}) {
      TopK expected;
      TopK answer;
      large->query(h, {.k = k}, alone, expected);
      large->query(h, {.k = k}, workspaces, answer, pool);
      expect_same(answer, expected);
      large->query(h, {.k = k}, workspaces, answer, own);
      expect_same(answer, expected);
      const TokenBias bias[] = {{3, 1.5F}, {4000, 20.0F}};
      TokenMask mask(layer.vocab());
      for (TokenId id = 0; id < 9000; id += 3) mask.allow(id);
      const QueryOptions edited = {.k = k, .allowed = mask, .logit_bias = bias};
      large->query(h, edited, alone, expected);
      large->query(h, edited, workspaces, answer, pool);
      expect_same(answer, expected);
    }
  }
  TopK untouched;
  EXPECT_THROW(large->query(contexts.row(0).transpose(), {}, std::span<Workspace>(), untouched),
               std::invalid_argument);
}

TEST_P(Conformance, ASmallBatchOnManyThreadsGivesTheSameAnswers) {
  const SoftmaxLayer layer = random_layer(9000, 96, 21);
  const auto large = make(layer, clustered_contexts(300, 96, 10, 22));
  const RowMajorMatrix contexts = clustered_contexts(30, 96, 10, 22);
  const TokenBias bias[] = {{3, 1.5F}, {4000, 20.0F}};
  TokenMask mask(layer.vocab());
  for (TokenId id = 0; id < 9000; id += 3) mask.allow(id);
  TokenMask tenth(layer.vocab());
  for (TokenId id = 0; id < 9000; id += 10) tenth.allow(id);
  const std::vector<QueryOptions> cases = {{.k = 7},
                                           {.k = 5, .allowed = mask, .logit_bias = bias},
                                           {.k = 3, .allowed = tenth, .probabilities = false},
                                           {.k = 5, .effort = QueryOptions::full_effort}};
  const testing::ReversedExecutor executor(3);
  std::vector<Workspace> alone(1);
  std::vector<Workspace> workspaces(3);
  for (const Eigen::Index batch : {1, 2, 5, 23, 30}) {  // divided by what is read, and at last by contexts
    const RowMajorMatrix H = contexts.topRows(batch);
    std::vector<TopK> expected(static_cast<std::size_t>(batch));
    std::vector<TopK> answers(expected.size());
    const auto expect_equal_answers = [&] {
      for (std::size_t q = 0; q < answers.size(); ++q) expect_same(answers[q], expected[q]);
    };
    for (const QueryOptions& options : cases) {
      large->query_batch(H, options, alone, expected, SerialExecutor());
      large->query_batch(H, options, workspaces, answers, executor);
      expect_equal_answers();
    }
    std::vector<QueryOptions> each;
    for (std::size_t q = 0; q < answers.size(); ++q) each.push_back(cases[q % cases.size()]);
    large->query_each(Contexts::of(H), each, alone, expected, SerialExecutor());
    large->query_each(Contexts::of(H), each, workspaces, answers, executor);
    expect_equal_answers();
    for (const QueryOptions& options : cases) {
      const std::span<const float> logits = large->logits_batch(H, options, alone[0]);
      const std::span<const float> shared =
          large->logits_batch(Contexts::of(H), options, workspaces, executor);
      EXPECT_TRUE(std::ranges::equal(shared, logits));
    }
  }
  EXPECT_THROW(large->logits_batch(Contexts::of(contexts), {}, std::span<Workspace>(), executor),
               std::invalid_argument);
}

TEST_P(Conformance, WorkspacesOfOtherBackendsAndLayersServe) {
  Workspace shared;
  TopK answer;
  const auto other = make(random_layer(30, 5, 9), clustered_contexts(40, 5, 2, 9));
  const auto large = Exact::make(random_layer(3000, 40, 9));
  for (Eigen::Index i = 0; i < 5; ++i) {
    large->query(random_vector(40, 3), {.k = 100}, shared, answer);
    head().query(context(i), {.k = 5}, shared, answer);
    expect_same(answer, head().query(context(i), {.k = 5}));
    other->query(random_vector(5, 3), {.k = 9}, shared, answer);
  }
}

/// TOPKSOFTMAX_ROUNDS: how often each of 32 threads asks 20 queries.
int wanted_rounds() {
  const char* const set = std::getenv("TOPKSOFTMAX_ROUNDS");
  return set == nullptr ? 10 : std::atoi(set);
}

TEST_P(Conformance, ManyThreadsGetTheSerialAnswersWhileOthersAreBuilt) {
  std::vector<TopK> serial;
  for (Eigen::Index i = 0; i < 20; ++i) serial.push_back(head().query(context(i), {.k = 5}));
  std::vector<std::vector<TopK>> found(32, std::vector<TopK>(20));
  std::atomic<std::size_t> asking = found.size();
  std::atomic<std::size_t> others = 0;
  const int rounds = wanted_rounds();
  std::vector<std::thread> threads;
  for (auto& answers : found) {
    threads.emplace_back([&] {
      Workspace workspace;
      for (int round = 0; round < rounds; ++round) {
        for (std::size_t i = 0; i < answers.size(); ++i) {
          head().query(context(static_cast<Eigen::Index>(i)), {.k = 5}, workspace, answers[i]);
          const bool is_same = answers[i].ids == serial[i].ids && answers[i].logits == serial[i].logits &&
                               answers[i].log_z == serial[i].log_z;
          others += is_same ? 0 : 1;
        }
      }
      --asking;
    });
  }
  const SoftmaxLayer layer = random_layer(90, kDim, 7);
  const RowMajorMatrix contexts = clustered_contexts(50, kDim, 3, 5);
  const TopK first = make(layer, contexts)->query(contexts.row(0), {.k = 5});
  constexpr int kMostBuilds = 1000;
  for (int built = 0; built == 0 || (asking > 0 && built < kMostBuilds); ++built) {
    expect_same(make(layer, contexts)->query(contexts.row(0), {.k = 5}), first);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(others, 0U) << "answers are not those of one thread";
  for (const auto& answers : found) {
    for (std::size_t i = 0; i < answers.size(); ++i) expect_same(answers[i], serial[i]);
  }
}

TEST_P(Conformance, WarmQueriesAllocateNothing) {
  Workspace workspace;
  TopK answer;
  std::vector<Eigen::VectorXf> contexts;
  for (Eigen::Index i = 0; i < 20; ++i) contexts.push_back(context(i));
  for (const auto& h : contexts) head().query(h, {.k = 5}, workspace, answer);
  const std::size_t before = testing::allocations();
  for (const auto& h : contexts) head().query(h, {.k = 5}, workspace, answer);
  EXPECT_EQ(testing::allocations(), before);
}

INSTANTIATE_TEST_SUITE_P(Backends, Conformance, ::testing::ValuesIn(testing::all_backends()),
                         [](const auto& backend) { return testing::suite_name(backend.param); });

}  // namespace
}  // namespace topksoftmax
