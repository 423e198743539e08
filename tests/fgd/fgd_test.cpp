// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/fgd/fgd.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/allocations.hpp"
#include "support/errors.hpp"
#include "support/layers.hpp"
#include "support/reference.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/fgd/build.hpp"
#include "topksoftmax/rows/ippt.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::error_of;
using testing::random_layer;
using testing::random_matrix;
using testing::random_vector;
using testing::Reference;

constexpr std::size_t kVocab = 4000;
constexpr Eigen::Index kDim = 20;

/// A layer, contexts, and graphs over it with and without entry points learned from contexts, built once.
struct World {
  SoftmaxLayer layer = random_layer(kVocab, kDim, 1);
  RowMajorMatrix contexts = clustered_contexts(1000, kDim, 40, 2);
  RowMajorMatrix test = contexts.bottomRows(100);
  std::unique_ptr<Exact> exact = Exact::make(layer);
  std::unique_ptr<Fgd> plain = Fgd::build(layer);
  std::unique_ptr<Fgd> taught = Fgd::build(layer, contexts.topRows(900));
};

const World& world() {
  static const World made;
  return made;
}

struct Measured {
  double precision = 0.0;
  double distances = 0.0;
  double fell_back = 0.0;
};

/// P@5 over the test contexts, and the mean number of distances.
Measured measure(const Fgd& head, const QueryOptions& options) {
  Measured measured;
  const auto count = static_cast<double>(world().test.rows());
  for (Eigen::Index i = 0; i < world().test.rows(); ++i) {
    const TopK truth = world().exact->query(world().test.row(i), options);
    const TopK answer = head.query(world().test.row(i), options);
    for (const TokenId id : answer.ids) {
      measured.precision += std::count(truth.ids.begin(), truth.ids.end(), id) != 0
                                ? 1.0 / (count * static_cast<double>(options.k))
                                : 0.0;
    }
    measured.distances += static_cast<double>(answer.work.screened) / count;
    measured.fell_back += answer.work.fell_back ? 1.0 / count : 0.0;
  }
  return measured;
}

TEST(Fgd, FindsTheTopTokensWithFewDistances) {
  for (const Fgd* const head : {world().plain.get(), world().taught.get()}) {
    const Measured measured = measure(*head, {.k = 5});
    EXPECT_GT(measured.precision, 0.95);
    EXPECT_LT(measured.distances, kVocab / 2.0);
    EXPECT_EQ(measured.fell_back, 0.0);
  }
  EXPECT_LT(world().taught->index_bytes(), world().layer.bytes() * 2);
}

TEST(Fgd, EffortIsEfSearch) {
  Measured previous;
  for (const std::size_t ef : {5U, 20U, 80U, 240U}) {
    const Measured measured = measure(*world().plain, {.k = 5, .effort = ef});
    EXPECT_GT(measured.distances, previous.distances);
    EXPECT_GE(measured.precision, previous.precision);
    previous = measured;
  }
  EXPECT_GT(previous.precision, 0.99);
  EXPECT_EQ(world().plain->query(world().test.row(0), {.k = 5, .effort = 30}).work.candidates, 30U);
  EXPECT_EQ(world().plain->query(world().test.row(0), {.k = 50, .effort = 30}).work.candidates, 50U);
}

TEST(Fgd, LearnedEntryPointsSaveDistances) {
  const Measured plain = measure(*world().plain, {.k = 5, .effort = 10});
  const Measured taught = measure(*world().taught, {.k = 5, .effort = 10});
  EXPECT_LT(taught.distances, plain.distances);
  EXPECT_GE(taught.precision, plain.precision);
}

TEST(Fgd, AnswersAreTheNearestRowsAndTheirLogitsComeBackFromTheDistances) {
  const SoftmaxLayer& layer = world().layer;
  const Ippt ippt(layer);
  std::vector<double> row(ippt.dim());
  std::vector<double> context(ippt.dim());
  for (Eigen::Index i = 0; i < 10; ++i) {
    const Eigen::VectorXf h = world().test.row(i);
    ippt.transform_context(h.data(), context.data());
    std::vector<std::pair<double, TokenId>> nearest;
    for (std::size_t token = 0; token < kVocab; ++token) {
      ippt.transform_row(token, row.data());
      double squared = 0.0;
      for (std::size_t j = 0; j < row.size(); ++j) squared += std::pow(row[j] - context[j], 2);
      nearest.emplace_back(squared, static_cast<TokenId>(token));
    }
    std::sort(nearest.begin(), nearest.end());
    const TopK answer = world().plain->query(h, {.k = 5, .effort = 240});
    const Reference reference(layer, h);
    for (std::size_t n = 0; n < 5; ++n) {
      EXPECT_EQ(answer.ids[n], nearest[n].second);
      EXPECT_NEAR(answer.logits[n], ippt.logit(nearest[n].first, h.cast<double>().squaredNorm()),
                  reference.tolerance(static_cast<std::size_t>(answer.ids[n]), kDim) + 1e-9);
    }
  }
}

/// The distances that queries for 50 contexts take.
std::vector<std::size_t> distances(const Fgd& head) {
  std::vector<std::size_t> found;
  for (unsigned i = 0; i < 50; ++i) {
    found.push_back(head.query(random_vector(static_cast<Eigen::Index>(head.layer().dim()), i), {.effort = 5})
                        .work.screened);
  }
  return found;
}

TEST(Fgd, EntryPointsAreLearnedFromAllPartsOfTheContexts) {
  const SoftmaxLayer layer = random_layer(1500, 12, 5);
  const RowMajorMatrix two = random_matrix(2, 12, 6, 3.0F);
  RowMajorMatrix contexts(399, 12);  // the second kind is more than half of all, not of the first 200
  contexts << two.row(0).replicate(120, 1), two.row(1).replicate(279, 1);
  const FgdOptions options = {.entry_points = 1, .context_sample = 200};
  const std::vector<std::size_t> sampled = distances(*Fgd::build(layer, contexts, options));
  EXPECT_EQ(sampled, distances(*Fgd::build(layer, contexts, {.entry_points = 1})));
  EXPECT_NE(sampled, distances(*Fgd::build(layer, RowMajorMatrix(contexts.topRows(200)), options)));
}

TEST(Fgd, ASeedGivesTheSameGraphAgain) {
  const SoftmaxLayer layer = random_layer(1500, 12, 5);
  const auto first = Fgd::build(layer, {.ef_search = 20, .seed = 7});
  const auto again = Fgd::build(layer, {.ef_search = 20, .seed = 7});
  const auto other = Fgd::build(layer, {.ef_search = 20, .seed = 8});
  std::size_t differing = 0;
  for (unsigned i = 0; i < 50; ++i) {
    const Eigen::VectorXf h = random_vector(12, i);
    const TopK a = first->query(h, {.k = 10});
    const TopK b = again->query(h, {.k = 10});
    EXPECT_EQ(a.ids, b.ids);
    EXPECT_EQ(a.log_z, b.log_z);
    EXPECT_EQ(a.work.screened, b.work.screened);
    differing += a.work.screened != other->query(h, {.k = 10}).work.screened ? 1U : 0U;
  }
  EXPECT_EQ(first->index_bytes(), again->index_bytes());
  EXPECT_GT(differing, 0U);
}

/// Layers whose rows are hard to link: a few long rows that all others would rather link to, groups of equal
/// rows far from each other, nothing but equal rows, no lengths at all, lengths beyond float32.
std::vector<SoftmaxLayer> awkward_layers() {
  std::vector<SoftmaxLayer> layers;
  RowMajorMatrix skewed = random_matrix(3000, 10, 1, 0.2F);
  for (Eigen::Index i = 0; i < skewed.rows(); i += 100) skewed.row(i) *= 30.0F;
  layers.push_back(SoftmaxLayer::own(skewed));
  RowMajorMatrix grouped(2000, 10);
  const RowMajorMatrix groups = random_matrix(8, 10, 2, 5.0F);
  for (Eigen::Index i = 0; i < grouped.rows(); ++i) grouped.row(i) = groups.row(i / 250);
  layers.push_back(SoftmaxLayer::own(grouped));
  layers.push_back(SoftmaxLayer::own(RowMajorMatrix::Ones(1500, 4)));
  layers.push_back(SoftmaxLayer::own(RowMajorMatrix::Zero(700, 3)));
  layers.push_back(SoftmaxLayer::own(random_matrix(600, 5, 3, 3e37F)));
  layers.push_back(SoftmaxLayer::own(random_matrix(600, 5, 3, 1e-38F)));
  return layers;
}

TEST(Fgd, EveryRowIsReachable) {
  for (const SoftmaxLayer& layer : awkward_layers()) {
    for (const std::size_t M : {2U, 4U, 16U}) {
      const auto head = Fgd::build(layer, {.M = M, .ef_construction = 20});
      EXPECT_EQ(head->screener().reachable(), layer.vocab());
    }
    const auto taught = Fgd::build(layer, random_matrix(50, static_cast<Eigen::Index>(layer.dim()), 4),
                                   {.M = 3, .ef_construction = 20, .entry_points = 2});
    EXPECT_EQ(taught->screener().reachable(), layer.vocab());
    const TopK all = taught->query(random_vector(static_cast<Eigen::Index>(layer.dim()), 9),
                                   {.k = layer.vocab(), .effort = QueryOptions::full_effort});
    EXPECT_EQ(std::set<TokenId>(all.ids.begin(), all.ids.end()).size(), layer.vocab());
  }
}

TEST(Fgd, EveryRowIsFoundByTheContextThatPointsAtIt) {
  RowMajorMatrix W = random_matrix(2000, 16, 3);
  W.rowwise().normalize();  // so that each row is the best for itself
  const SoftmaxLayer layer = SoftmaxLayer::own(W);
  const auto head = Fgd::build(layer, {.M = 8, .ef_construction = 60});
  std::size_t missed = 0;
  for (TokenId token = 0; token < 2000; ++token) {
    missed += head->query(W.row(token), {.effort = 100}).ids[0] != token ? 1U : 0U;
  }
  EXPECT_LE(missed, 2U);
}

TEST(Fgd, WalksTheSameWayUnderASoftCap) {
  const auto capped = Fgd::build(world().layer.with({.scale = 10.0F, .soft_cap = 1.0F}));
  for (Eigen::Index i = 0; i < world().test.rows(); ++i) {
    const QueryWork work = world().plain->query(world().test.row(i), {.k = 5}).work;
    EXPECT_EQ(capped->query(world().test.row(i), {.k = 5}).work.screened, work.screened) << i;
  }
}

TEST(Fgd, MasksDirectTheSearch) {
  TokenMask quarter(kVocab);
  for (TokenId token = 0; token < static_cast<TokenId>(kVocab); token += 4) quarter.allow(token);
  const Measured measured = measure(*world().plain, {.k = 5, .allowed = quarter, .effort = 20});
  EXPECT_GT(measured.precision, 0.95);
  EXPECT_EQ(measured.fell_back, 0.0);

  TokenMask few(kVocab);  // more than are simply scored, too few to be met with
  for (TokenId token = 0; token < 200; ++token) few.allow(token * 20);
  const TopK answer = world().plain->query(world().test.row(0), {.k = 5, .allowed = few});
  EXPECT_TRUE(answer.work.fell_back);
  EXPECT_EQ(answer.ids, world().exact->query(world().test.row(0), {.k = 5, .allowed = few}).ids);
}

TEST(Fgd, PenalisedTokensTakeNoPlacesInTheQueue) {
  std::size_t found = 0;
  for (Eigen::Index i = 0; i < 20; ++i) {
    const Eigen::VectorXf h = world().test.row(i);
    std::vector<TokenBias> penalties;  // for more tokens than the queue holds
    for (const TokenId id : world().exact->query(h, {.k = 60}).ids) penalties.push_back({id, -1000.0F});
    std::sort(penalties.begin(), penalties.end(),
              [](const TokenBias& a, const TokenBias& b) { return a.id < b.id; });
    const QueryOptions options = {.k = 3, .logit_bias = penalties, .effort = 40};
    const TopK truth = world().exact->query(h, options);
    const TopK answer = world().plain->query(h, options);
    EXPECT_FALSE(answer.work.fell_back);
    for (const TokenId id : answer.ids)
      found += std::count(truth.ids.begin(), truth.ids.end(), id) != 0 ? 1U : 0U;
  }
  EXPECT_GE(found, 52U);
}

// Which tokens are found depends on biases; what was learned is outside of those that are found without.
TEST(Fgd, BiasesLeaveTheLearnedMassOutsideAsItIs) {
  const Fgd& head = *world().taught;
  for (const std::size_t biased : {1U, 5U, 60U}) {
    double plain_error = 0.0;
    double biased_error = 0.0;
    for (Eigen::Index i = 0; i < world().test.rows(); ++i) {
      const Eigen::VectorXf h = world().test.row(i);
      std::vector<TokenBias> biases;
      for (const TokenId id : world().exact->query(h, {.k = biased}).ids) biases.push_back({id, 1e-3F});
      std::sort(biases.begin(), biases.end(),
                [](const TokenBias& a, const TokenBias& b) { return a.id < b.id; });
      const TopK plain = head.query(h, {.k = 5});
      const TopK answer = head.query(h, {.k = 5, .logit_bias = biases});
      ASSERT_EQ(answer.normalizer, Normalizer::learned);
      plain_error += std::abs(plain.log_z - world().exact->query(h).log_z);
      biased_error += std::abs(answer.log_z - world().exact->query(h, {.k = 5, .logit_bias = biases}).log_z);
      if (biased > 1) continue;
      EXPECT_NEAR(answer.log_z, plain.log_z, 5e-3) << i;  // the search goes further by a token
    }
    EXPECT_LT(biased_error, 1.1 * plain_error) << biased;
  }
}

TEST(Fgd, ThreadsMaySearchWithDifferentEfforts) {
  const std::vector<std::size_t> efforts = {10, 30, 100, 200};
  std::vector<std::vector<TopK>> found(efforts.size());
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < efforts.size(); ++t) {
    threads.emplace_back([&, t] {
      Workspace workspace;
      for (Eigen::Index i = 0; i < world().test.rows(); ++i) {
        world().plain->query(world().test.row(i), {.k = 5, .effort = efforts[t]}, workspace,
                             found[t].emplace_back());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (std::size_t t = 0; t < efforts.size(); ++t) {
    for (Eigen::Index i = 0; i < world().test.rows(); ++i) {
      const TopK alone = world().plain->query(world().test.row(i), {.k = 5, .effort = efforts[t]});
      const TopK& answer = found[t][static_cast<std::size_t>(i)];
      EXPECT_EQ(answer.ids, alone.ids);
      EXPECT_EQ(answer.work.screened, alone.work.screened);
    }
  }
}

TEST(Fgd, WarmSearchesAllocateNothingWhateverTheirEffort) {
  Workspace workspace;
  TopK answer;
  TokenMask mask(kVocab);
  for (TokenId token = 0; token < static_cast<TokenId>(kVocab); token += 3) mask.allow(token);
  const Eigen::VectorXf h = world().test.row(0);
  world().plain->query(h, {.k = 5, .effort = 200}, workspace, answer);
  const std::size_t before = testing::allocations();
  for (const std::size_t effort : {10U, 200U, 50U}) {
    world().plain->query(h, {.k = 5, .effort = effort}, workspace, answer);
    world().plain->query(h, {.k = 5, .allowed = mask, .effort = effort / 2}, workspace, answer);
  }
  EXPECT_EQ(testing::allocations(), before);
}

TEST(Fgd, SearchesRowsOfEveryStoredType) {
  const RowMajorMatrix W = random_matrix(2000, 13, 6, 40.0F).cwiseMax(-127.0F).cwiseMin(127.0F);
  std::vector<std::int8_t> int8;
  std::vector<Eigen::half> half;
  for (Eigen::Index i = 0; i < W.size(); ++i) {
    int8.push_back(static_cast<std::int8_t>(W.data()[i]));
    half.push_back(Eigen::half(W.data()[i] * 0.01F));
  }
  const std::vector<float> scales(2000, 0.01F);
  kernels::Rows rows;
  rows.count = 2000;
  rows.dim = rows.stride = 13;
  rows.data = half.data();
  rows.type = WeightType::float16;
  const SoftmaxLayer half_layer = SoftmaxLayer::borrow(rows, 0);
  rows.data = int8.data();
  rows.scales = scales.data();
  rows.type = WeightType::int8;
  const SoftmaxLayer int8_layer = SoftmaxLayer::borrow(rows, 0);
  for (const SoftmaxLayer& layer : {half_layer, int8_layer}) {
    const auto head = Fgd::build(layer);
    const auto exact = Exact::make(layer);
    std::size_t found = 0;
    for (unsigned i = 0; i < 40; ++i) {
      const Eigen::VectorXf h = random_vector(13, i);
      found += head->query(h).ids == exact->query(h).ids ? 1U : 0U;
    }
    EXPECT_GE(found, 38U);
  }
  EXPECT_LT(Fgd::build(int8_layer)->index_bytes(), Fgd::build(half_layer)->index_bytes());
}

TEST(Fgd, UnusableOptionsAreRefused) {
  const SoftmaxLayer layer = random_layer(100, 6, 1);
  const RowMajorMatrix contexts = random_matrix(20, 6, 2);
  const auto refused = [&](const FgdOptions& options) {
    return error_of([&] { Fgd::build(layer, contexts, options); });
  };
  EXPECT_EQ(refused({.M = 1}), "fgd: M is 1; it must be at least 2 and at most 1024");
  EXPECT_EQ(refused({.M = 2000}), "fgd: M is 2000; it must be at least 2 and at most 1024");
  EXPECT_EQ(refused({.ef_construction = 0}), "fgd: ef_construction is 0; it must be at least 1");
  EXPECT_EQ(refused({.ef_search = 0}), "fgd: ef_search is 0; it must be at least 1");
  EXPECT_EQ(refused({.entry_points = 0}), "fgd: entry_points is 0; it must be at least 1");
  EXPECT_EQ(refused({.context_sample = 0}), "fgd: context_sample is 0; it must be at least 1");
  EXPECT_EQ(error_of([&] { Fgd::build(layer, random_matrix(5, 7, 1)); }),
            "fgd: contexts have 7 values, the layer's dimension is 6");
  RowMajorMatrix broken = contexts;
  broken(3, 1) = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(error_of([&] { Fgd::build(layer, broken); }), "fgd: context 3 has a value that is not finite");
}

/// The full softmax against the softmax over the K best: the largest log-probability error, and the total
/// variation distance.
struct SoftmaxErrors {
  SoftmaxErrors(const Reference& reference, std::size_t K) {
    std::vector<double> logits = reference.logits;
    std::sort(logits.rbegin(), logits.rend());
    double inside = 0.0;
    for (std::size_t i = 0; i < K; ++i) inside += std::exp(logits[i] - logits[0]);
    log_z = logits[0] + std::log(inside);
    log_prob = reference.log_z - log_z;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double p = std::exp(logits[i] - reference.log_z);
      total_variation += 0.5 * std::abs((i < K ? std::exp(logits[i] - log_z) : 0.0) - p);
    }
    last = logits[K - 1];
  }

  double log_z = 0.0;
  double last = 0.0;
  double log_prob = 0.0;
  double total_variation = 0.0;
};

TEST(TopKSoftmaxError, BoundsTheErrorOfTheKBest) {
  for (const float scale : {0.01F, 1.0F, 10.0F}) {
    for (unsigned seed = 0; seed < 5; ++seed) {
      const Reference reference(world().layer, random_vector(kDim, seed, scale));
      for (const std::size_t K : {1U, 5U, 100U, 3999U, 4000U}) {
        const SoftmaxErrors errors(reference, K);
        const double bound = top_k_softmax_error(errors.log_z, errors.last, kVocab - K);
        EXPECT_GE(bound, errors.log_prob - 1e-9);
        EXPECT_GE(1.0 - std::exp(-bound), errors.total_variation - 1e-9);
        EXPECT_LE(bound, std::log(static_cast<double>(kVocab) / static_cast<double>(K)) + 1e-9);
      }
    }
  }
}

TEST(TopKSoftmaxError, IsTheErrorItselfWhereAllLogitsAreEqual) {
  EXPECT_NEAR(top_k_softmax_error(std::log(10.0), 0.0, 990), std::log(100.0), 1e-12);
  EXPECT_NEAR(top_k_softmax_error(700.0 + std::log(10.0), 700.0, 990), std::log(100.0), 1e-9);
  EXPECT_EQ(top_k_softmax_error(3.0, 2.0, 0), 0.0);
}

TEST(TopKSoftmaxError, BoundsTheErrorOfFgd) {
  for (Eigen::Index i = 0; i < world().test.rows(); ++i) {
    const Eigen::VectorXf h = world().test.row(i);
    const TopK answer = world().plain->query(h, {.k = 5, .effort = 60});
    if (answer.ids != world().exact->query(h, {.k = 5}).ids) continue;
    const double bound = top_k_softmax_error(answer, kVocab);
    const Reference reference(world().layer, h);
    for (std::size_t n = 0; n < 5; ++n) {
      const double log_p = reference.logits[static_cast<std::size_t>(answer.ids[n])] - reference.log_z;
      EXPECT_GE(answer.log_prob(n), log_p - 1e-4);
      EXPECT_LE(answer.log_prob(n), log_p + bound + 1e-4);
    }
  }
  const Eigen::VectorXf h = world().test.row(0);
  EXPECT_EQ(top_k_softmax_error(world().exact->query(h, {.k = 5}), kVocab), 0.0);
  EXPECT_THROW(top_k_softmax_error(world().plain->query(h, {.probabilities = false}), kVocab),
               std::invalid_argument);
}

}  // namespace
}  // namespace topksoftmax
