// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/mapped_vocabulary.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/allocations.hpp"
#include "support/errors.hpp"
#include "support/executors.hpp"
#include "support/layers.hpp"
#include "support/reference.hpp"
#include "support/same_answers.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/certified/certify.hpp"
#include "topksoftmax/decoding/backend_sampler.hpp"
#include "topksoftmax/decoding/beam_search.hpp"
#include "topksoftmax/decoding/draw_each.hpp"
#include "topksoftmax/decoding/low_rank_log_prob.hpp"
#include "topksoftmax/decoding/perplexity.hpp"
#include "topksoftmax/decoding/sampling.hpp"
#include "topksoftmax/decoding/self_draft.hpp"
#include "topksoftmax/decoding/token_cursor.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/io/index_file.hpp"
#include "topksoftmax/l2s/build.hpp"
#include "topksoftmax/l2s/l2s.hpp"
#include "topksoftmax/registry/standard_loader.hpp"
#include "topksoftmax/shortlist/build.hpp"
#include "topksoftmax/shortlist/shortlist.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::error_of;
using testing::expect_same;
using testing::random_layer;
using testing::Reference;

constexpr Eigen::Index kVocab = 1500;
constexpr Eigen::Index kDim = 16;
constexpr float kNoLogit = -std::numeric_limits<float>::infinity();

/// Where padding rows lie.
enum class Padding { none, last, between };

/// The tokens of rows: about two of five, and all or none of some blocks of 64.
std::vector<TokenId> some_tokens(Padding padding) {
  std::mt19937 random(7);
  std::vector<TokenId> token_of_row;
  for (TokenId id = 0; id < kVocab; ++id) {
    const int block = id / 64;
    const bool has_row = block == 3 || block == 4 || (block != 6 && block != 9 && random() % 5 < 2);
    if (has_row) token_of_row.push_back(id);
    if (padding == Padding::between && random() % 16 == 0) token_of_row.push_back(RowMap::none);
  }
  if (padding == Padding::last) token_of_row.insert(token_of_row.end(), 30, RowMap::none);
  return token_of_row;
}

/// A layer of a model, and one of some rows of it. Padding rows have large logits, some the largest.
class World {
 public:
  explicit World(Padding padding)
      : token_of_row(some_tokens(padding)),
        full(random_layer(kVocab, kDim, 1)),
        rows(of_rows(full, token_of_row)),
        contexts(clustered_contexts(300, kDim, 8, 2)),
        has_row(kVocab, false) {
    for (const TokenId id : token_of_row) {
      if (id != RowMap::none) has_row[static_cast<std::size_t>(id)] = true;
    }
  }

  std::unique_ptr<MappedVocabulary> mapped(std::shared_ptr<const TopKSoftmax> backend) const {
    return MappedVocabulary::wrap(std::move(backend), token_of_row, kVocab);
  }

  /// Backends over the rows.
  std::vector<std::shared_ptr<const TopKSoftmax>> backends() const {
    L2SOptions small;
    small.clusters = 6;
    small.budget = 60;
    small.rounds = 1;
    return {Fused::make(rows), Certified::build(rows, contexts), L2S::train(rows, contexts, small),
            Certify::wrap(Shortlist::build(rows, {.top_frequent = 40}), contexts)};
  }

  std::vector<TokenId> token_of_row;
  SoftmaxLayer full;
  SoftmaxLayer rows;
  RowMajorMatrix contexts;
  std::vector<bool> has_row;  ///< by token

 private:
  static SoftmaxLayer of_rows(const SoftmaxLayer& full, const std::vector<TokenId>& token_of_row) {
    const RowMajorMatrix W = full.weights();
    const Eigen::VectorXf b = full.biases();
    const auto count = static_cast<Eigen::Index>(token_of_row.size());
    RowMajorMatrix of_rows = RowMajorMatrix::Zero(count, kDim);
    Eigen::VectorXf biases(count);
    int padding = 0;
    for (Eigen::Index row = 0; row < count; ++row) {
      const TokenId id = token_of_row[static_cast<std::size_t>(row)];
      if (id == RowMap::none) {
        biases[row] = padding++ % 32 == 0 ? 100.0F : 4.0F;
        continue;
      }
      of_rows.row(row) = W.row(id);
      biases[row] = b[id];
    }
    return SoftmaxLayer::own(std::move(of_rows), std::move(biases));
  }
};

/// What is asked of a model, and the same of the full layer and of the rows, each mask written bit by bit.
struct Question {
  Question(const World& world, const std::vector<bool>* allowed, std::vector<TokenBias> biases)
      : masked(allowed != nullptr), mask(kVocab), full_mask(kVocab), bias(std::move(biases)) {
    bool padded = false;
    row_mask.resize(world.token_of_row.size() / 64 + 1);
    for (std::size_t id = 0; id < kVocab; ++id) {
      if (allowed != nullptr && !(*allowed)[id]) continue;
      mask.allow(static_cast<TokenId>(id));
      if (world.has_row[id]) full_mask.allow(static_cast<TokenId>(id));
    }
    for (std::size_t row = 0; row < world.token_of_row.size(); ++row) {
      const TokenId id = world.token_of_row[row];
      padded |= id == RowMap::none;
      if (id != RowMap::none && mask.allows(id)) row_mask[row / 64] |= std::uint64_t{1} << (row % 64);
      for (const TokenBias& one : bias) {
        if (one.id == id) row_bias.push_back({static_cast<TokenId>(row), one.bias});
      }
    }
    row_masked = masked || padded;
  }

  QueryOptions of_model(std::size_t k) const {
    return {.k = k, .allowed = masked ? AllowedTokens(mask) : AllowedTokens(), .logit_bias = bias};
  }
  QueryOptions of_full(std::size_t k) const { return {.k = k, .allowed = full_mask, .logit_bias = bias}; }
  QueryOptions of_rows(std::size_t k) const {
    return {
        .k = k, .allowed = row_masked ? AllowedTokens(row_mask) : AllowedTokens(), .logit_bias = row_bias};
  }

  bool masked;
  bool row_masked = false;
  TokenMask mask;
  TokenMask full_mask;
  std::vector<std::uint64_t> row_mask;
  std::vector<TokenBias> bias;
  std::vector<TokenBias> row_bias;
};

std::vector<Question> questions(const World& world) {
  const std::vector<TokenBias> bias = {{2, 1.0F}, {200, 6.0F}, {201, -3.0F}, {420, 50.0F}, {1400, 2.0F}};
  std::mt19937 random(3);
  std::vector<bool> half(kVocab);
  std::vector<bool> most(kVocab);
  std::vector<bool> third(kVocab);
  std::vector<bool> few(kVocab);
  std::vector<bool> no_row(kVocab);
  for (std::size_t id = 0; id < kVocab; ++id) {
    half[id] = random() % 2 == 0;
    most[id] = random() % 30 != 0;
    third[id] = id % 3 == 0;
    few[id] = id % 160 == 0 || id == 200;
    no_row[id] = !world.has_row[id];
  }
  const std::vector<bool> all(kVocab, true);
  const std::vector<bool> none(kVocab, false);
  std::vector<Question> asked;
  const std::vector<const std::vector<bool>*> masks = {nullptr, &half,   &most, &third,
                                                       &few,    &no_row, &all,  &none};
  for (const auto* const allowed : masks) {
    asked.emplace_back(world, allowed, std::vector<TokenBias>{});
    asked.emplace_back(world, allowed, bias);
  }
  return asked;
}

/// The answer to the rows' question, by the model's ids.
TopK named(TopK answer, const World& world) {
  for (TokenId& id : answer.ids) id = world.token_of_row[static_cast<std::size_t>(id)];
  return answer;
}

/// log Z in double precision over the tokens that are allowed and have rows.
double exact_log_z(const World& world, const Eigen::VectorXf& h, const Question& question) {
  const Reference reference(world.full, h);
  double sum = 0.0;
  for (TokenId id = 0; id < kVocab; ++id) {
    if (!question.full_mask.allows(id)) continue;
    double logit = reference.logits[static_cast<std::size_t>(id)];
    for (const TokenBias& bias : question.bias) {
      if (bias.id == id) logit += static_cast<double>(bias.bias);
    }
    sum += std::exp(logit);
  }
  return std::log(sum);
}

class MappedVocabularyTest : public ::testing::TestWithParam<Padding> {
 protected:
  Eigen::VectorXf context(Eigen::Index i) const { return world_.contexts.row(i); }

  const World world_{GetParam()};
  const Fused fused_{world_.full};
};

TEST_P(MappedVocabularyTest, AnswersAsTheFullLayerWithTheOthersForbidden) {
  for (const auto& backend : world_.backends()) {
    const auto head = world_.mapped(backend);
    SCOPED_TRACE(head->name());
    EXPECT_EQ(head->name(), "mapped:" + std::string(backend->name()));
    EXPECT_EQ(head->vocab(), static_cast<std::size_t>(kVocab));
    EXPECT_EQ(head->certifies(), backend->certifies());
    EXPECT_GT(head->index_bytes(), backend->index_bytes());
    for (const Question& question : questions(world_)) {
      for (const std::size_t k : {1U, 7U, 100U, 5000U}) {
        const Eigen::VectorXf h = context(static_cast<Eigen::Index>(k % 11));
        const TopK answer = head->query(h, question.of_model(k));
        expect_same(answer, named(backend->query(h, question.of_rows(k)), world_));
        EXPECT_EQ(answer.size(), std::min(k, head->count_allowed(question.of_model(k).allowed)));
        if (!head->certifies()) continue;
        const TopK expected = fused_.query(h, question.of_full(k));
        EXPECT_EQ(answer.ids, expected.ids);
        EXPECT_EQ(answer.logits, expected.logits);
        EXPECT_TRUE(answer.certified);
        const double log_z = exact_log_z(world_, h, question);
        if (std::isinf(log_z)) {
          EXPECT_EQ(answer.log_z, log_z);
          continue;
        }
        EXPECT_LE(answer.log_z_low, log_z + 1e-5);
        EXPECT_GE(answer.log_z_high, log_z - 1e-5);
        if (answer.normalizer == Normalizer::exact) {
          EXPECT_NEAR(answer.log_z, log_z, 1e-5);
        }
      }
    }
  }
}

TEST_P(MappedVocabularyTest, MasksMayBeOf32BitsAndLongerThanTheVocabulary) {
  const auto head = world_.mapped(Fused::make(world_.rows));
  std::vector<std::uint32_t> words(kVocab / 32 + 4, 0xA5A5F00FU);
  TokenMask mask(kVocab);
  for (TokenId id = 0; id < kVocab; ++id) {
    if ((0xA5A5F00FU >> (id % 32) & 1U) != 0) mask.allow(id);
  }
  expect_same(head->query(context(0), {.k = 9, .allowed = words}),
              head->query(context(0), {.k = 9, .allowed = mask}));
}

TEST_P(MappedVocabularyTest, BatchesAndThreadsChangeNothing) {
  const testing::ReversedExecutor executor;
  for (const auto& backend : world_.backends()) {
    const auto head = world_.mapped(backend);
    SCOPED_TRACE(head->name());
    for (const Question& question : questions(world_)) {
      const QueryOptions options = question.of_model(6);
      std::vector<Workspace> workspaces(3);
      std::vector<TopK> answers(20);
      const RowMajorMatrix H = world_.contexts.topRows(20);
      head->query_batch(H, options, workspaces, answers, executor);
      std::vector<TokenId> ids(20 * 6);
      std::vector<float> logits(20 * 6);
      std::vector<double> log_z(20);
      head->query_batch(H.data(), 20, kDim, kDim, options, std::span(workspaces).first(1),
                        FlatAnswers{.ids = ids.data(), .logits = logits.data(), .log_z = log_z.data()},
                        executor);
      for (std::size_t q = 0; q < answers.size(); ++q) {
        const Eigen::VectorXf h = context(static_cast<Eigen::Index>(q));
        const TopK alone = head->query(h, options);
        expect_same(answers[q], alone);
        for (std::size_t i = 0; i < 6; ++i) {
          EXPECT_EQ(ids[6 * q + i], i < alone.size() ? alone.ids[i] : -1);
          EXPECT_EQ(logits[6 * q + i], i < alone.size() ? alone.logits[i] : kNoLogit);
        }
        EXPECT_EQ(log_z[q], alone.log_z);
        TopK shared;
        head->query(h, options, workspaces, shared, executor);
        expect_same(shared, alone);
      }
    }
  }
}

TEST_P(MappedVocabularyTest, LogitsAreThoseOfTheFullLayer) {
  const auto head = world_.mapped(Fused::make(world_.rows));
  Workspace workspace;
  Workspace other;
  std::vector<TokenId> ids;  // more than are scored at a time
  for (int i = 0; i < 2500; ++i) ids.push_back(static_cast<TokenId>(i * 7 % kVocab));
  std::vector<float> some(ids.size());
  const RowMajorMatrix H = world_.contexts.topRows(3);
  for (const Question& question : questions(world_)) {
    const auto logits = head->logits_batch(H, question.of_model(1), workspace);
    const auto expected = fused_.logits_batch(H, question.of_full(1), other);
    EXPECT_TRUE(std::equal(logits.begin(), logits.end(), expected.begin(), expected.end()));
    const auto of_one = head->logits(context(0), question.of_model(1), workspace);
    EXPECT_TRUE(std::equal(of_one.begin(), of_one.end(), expected.begin(), expected.begin() + kVocab));
    const Eigen::VectorXf h = context(0);
    head->logits_of({h.data(), kDim}, ids, question.of_model(1), workspace, some);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(some[i], expected[static_cast<std::size_t>(ids[i])]);
    }
  }
}

TEST_P(MappedVocabularyTest, CandidatesAreTokensThatHaveRows) {
  for (const auto& backend : world_.backends()) {
    const auto head = world_.mapped(backend);
    Workspace workspace;
    Workspace other;
    const Eigen::VectorXf h = context(4);
    const auto found = head->candidates(h.data(), kDim, {.k = 5}, workspace);
    EXPECT_EQ(found.has_value(), backend->candidates(h.data(), kDim, {.k = 5}, other).has_value());
    if (!found || found->everything) continue;
    EXPECT_FALSE(found->ids.empty());
    std::vector<float> logits(found->ids.size());
    head->logits_of({h.data(), kDim}, found->ids, {}, workspace, logits);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      EXPECT_TRUE(world_.has_row[static_cast<std::size_t>(found->ids[i])]);
      if (found->logits != nullptr) {
        EXPECT_EQ(found->logits[i], logits[i]);
      }
    }
    if (found->packed != nullptr) {
      EXPECT_EQ(found->packed->count, found->ids.size());
    }
  }
}

TEST_P(MappedVocabularyTest, SamplesLogZOverTheTokensThatHaveRows) {
  const auto head = world_.mapped(Certified::build(world_.rows, world_.contexts));
  Workspace workspace;
  for (const Question& question : questions(world_)) {
    const Eigen::VectorXf h = context(5);
    const std::span<const float> values(h.data(), kDim);
    const double log_z = exact_log_z(world_, h, question);
    if (std::isinf(log_z)) {
      EXPECT_THROW(head->sample_log_z(values, {.error = 0.02}, question.of_model(1), workspace),
                   std::invalid_argument);
      continue;
    }
    const auto found = head->sample_log_z(values, {.error = 0.02}, question.of_model(1), workspace);
    ASSERT_TRUE(found);
    EXPECT_NEAR(found->log_z, log_z, 0.03);
  }
}

TEST_P(MappedVocabularyTest, CanBeCertified) {
  const std::shared_ptr<const TopKSoftmax> list =
      world_.mapped(Shortlist::build(world_.rows, {.top_frequent = 40}));
  const auto head = Certify::wrap(list, world_.contexts);
  EXPECT_EQ(head->vocab(), static_cast<std::size_t>(kVocab));
  for (const Question& question : questions(world_)) {
    const TopK answer = head->query(context(2), question.of_model(5));
    const TopK expected = fused_.query(context(2), question.of_full(5));
    EXPECT_EQ(answer.ids, expected.ids);
    EXPECT_EQ(answer.logits, expected.logits);
  }
}

TEST_P(MappedVocabularyTest, AllocatesNothingOnceWarm) {
  for (const auto& backend : world_.backends()) {
    const auto head = world_.mapped(backend);
    SCOPED_TRACE(head->name());
    std::vector<Workspace> workspaces(1);
    std::vector<TopK> answers(20);
    const RowMajorMatrix H = world_.contexts.topRows(20);
    const std::vector<Question> asked = questions(world_);
    const auto ask_all = [&] {
      for (const Question& question : asked) {
        for (Eigen::Index i = 0; i < H.rows(); ++i) {
          head->query(H.row(i).transpose(), question.of_model(5), workspaces[0], answers[0]);
        }
        head->query_batch(H, question.of_model(5), workspaces, answers, SerialExecutor());
      }
    };
    ask_all();
    const std::size_t before = testing::allocations();
    ask_all();
    EXPECT_EQ(testing::allocations(), before);
  }
}

TEST_P(MappedVocabularyTest, ContextsHaveOptionsOfTheirOwn) {
  const std::vector<Question> asked = questions(world_);
  std::vector<QueryOptions> options;
  for (const Question& question : asked) options.push_back(question.of_model(5));
  const RowMajorMatrix H = world_.contexts.topRows(static_cast<Eigen::Index>(options.size()));
  for (const auto& backend : world_.backends()) {
    const auto head = world_.mapped(backend);
    SCOPED_TRACE(head->name());
    std::vector<Workspace> workspaces(2);
    std::vector<TopK> answers(options.size());
    head->query_each(Contexts::of(H), options, workspaces, answers);
    for (std::size_t q = 0; q < options.size(); ++q) {
      expect_same(answers[q], head->query(H.row(static_cast<Eigen::Index>(q)), options[q]));
    }
  }
}

TEST_P(MappedVocabularyTest, ABatchThatMemoryRunsOutOnHasWholeAnswersOrTheOldOnes) {
  if (!testing::can_fail_allocations()) GTEST_SKIP() << "operator new is not ours";
  const auto head = world_.mapped(world_.backends()[1]);
  const RowMajorMatrix H = world_.contexts.topRows(6);
  const RowMajorMatrix others = world_.contexts.middleRows(20, 6);
  const std::vector<TopK> expected = head->query_batch(H, {.k = 9}, SerialExecutor());
  const std::vector<TopK> old = head->query_batch(others, {.k = 2}, SerialExecutor());
  bool failed = true;
  for (std::size_t n = 1; failed; ++n) {
    std::vector<TopK> answers = old;
    std::vector<Workspace> workspaces(1);
    {
      const testing::FailingAllocation failing(n);
      try {
        head->query_batch(H, {.k = 9}, workspaces, answers, SerialExecutor());
      } catch (const std::bad_alloc&) {
      }
      failed = failing.has_failed();
    }
    for (std::size_t q = 0; q < answers.size(); ++q) {
      EXPECT_TRUE(answers[q].ids == expected[q].ids || answers[q].ids == old[q].ids) << n;
    }
  }
}

TEST_P(MappedVocabularyTest, DrawsForManyRequestsWhatEachDrawsAlone) {
  const std::vector<Question> asked = questions(world_);
  for (const auto& backend : world_.backends()) {
    const auto head = world_.mapped(backend);
    SCOPED_TRACE(head->name());
    std::vector<Sampler> samplers(2 * asked.size());
    std::vector<RandomStream> streams;
    std::vector<DrawRequest> requests;
    RowMajorMatrix H(static_cast<Eigen::Index>(asked.size()), kDim);
    std::vector<SampledToken> expected;
    for (std::size_t i = 0; i < asked.size(); ++i) {
      const QueryOptions query = asked[i].of_model(1);
      if (head->count_allowed(query.allowed) == 0) continue;
      const auto row = static_cast<Eigen::Index>(requests.size());
      H.row(row) = context(static_cast<Eigen::Index>(i)).transpose();
      RandomStream random(i);
      expected.push_back(samplers[2 * i].draw(*head, H.row(row), random, query));
      requests.push_back({.sampler = &samplers[2 * i + 1], .query = query});
      streams.emplace_back(i);
    }
    for (std::size_t i = 0; i < requests.size(); ++i) requests[i].random = &streams[i];
    std::vector<SampledToken> tokens(requests.size());
    std::vector<Workspace> workspaces(2);
    draw_each(*head, {H.data(), requests.size(), kDim, kDim}, requests, tokens, workspaces);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(tokens[i].id, expected[i].id);
      EXPECT_EQ(tokens[i].logit, expected[i].logit);
    }
  }
}

TEST_P(MappedVocabularyTest, DrawsTheTokensOfTheFullLayer) {
  const std::vector<Question> asked = questions(world_);
  const auto backends = world_.backends();
  for (const SamplingOptions& sampling :
       {SamplingOptions{}, SamplingOptions{.temperature = 0.0}, SamplingOptions{.temperature = 0.7},
        SamplingOptions{.top_k = 12}, SamplingOptions{.temperature = 1.5, .min_p = 0.05},
        SamplingOptions{.top_p = 0.8}, SamplingOptions{.typical_p = 0.7}}) {
    Sampler of_full(sampling);
    for (const auto& backend : backends) {
      const auto head = world_.mapped(backend);
      SCOPED_TRACE(head->name());
      if (sampling.temperature == 0.0 && !head->certifies()) continue;
      Sampler of_mapped(sampling);
      for (std::size_t i = 0; i < asked.size(); ++i) {
        const Eigen::VectorXf h = context(static_cast<Eigen::Index>(i));
        if (head->count_allowed(asked[i].of_model(1).allowed) == 0) {
          RandomStream random(i);
          EXPECT_THROW(of_mapped.draw(*head, h, random, asked[i].of_model(1)), std::invalid_argument);
          continue;
        }
        for (std::uint64_t seed = 0; seed < 8; ++seed) {
          RandomStream random(seed);
          RandomStream same(seed);
          const SampledToken token = of_mapped.draw(*head, h, random, asked[i].of_model(1));
          const SampledToken expected = of_full.draw(fused_, h, same, asked[i].of_full(1));
          EXPECT_EQ(token.id, expected.id);
          EXPECT_EQ(token.logit, expected.logit);
          if (sampling.temperature == 0.0) continue;
          EXPECT_LE(token.log_prob_low, expected.log_prob + 1e-5);
          EXPECT_GE(token.log_prob_high, expected.log_prob - 1e-5);
        }
      }
      // Tokens without a row are not worth a scan.
      if (head->name() == "mapped:certified" && sampling.top_k == 12) {
        EXPECT_EQ(of_mapped.full_scans(), 0U);
      }
    }
  }
}

TEST_P(MappedVocabularyTest, DrawsFromWhatABackendItselfAnswers) {
  const auto head = world_.mapped(world_.backends()[2]);
  const std::vector<Question> asked = questions(world_);
  BackendSampler sampler;
  RandomStream random(3);
  for (const Question& question : asked) {
    if (head->count_allowed(question.of_model(1).allowed) == 0) continue;
    for (Eigen::Index i = 0; i < 30; ++i) {
      const SampledToken token = sampler.draw(*head, context(i), random, question.of_model(1));
      EXPECT_TRUE(question.full_mask.allows(token.id));
      EXPECT_LE(token.log_prob, 0.0);
    }
  }
}

TEST_P(MappedVocabularyTest, GivesItsTokensOneByOne) {
  const auto head = world_.mapped(Certified::build(world_.rows, world_.contexts));
  const Eigen::VectorXf h = context(3);
  const TopK all = head->query(h, {.k = kVocab});
  TokenCursor cursor(*head, {h.data(), kDim});
  for (const TokenId id : all.ids) EXPECT_EQ(cursor.next()->id, id);
  EXPECT_FALSE(cursor.next());
}

/// A context for every token that was read last.
ContextModel model_of(const RowMajorMatrix& contexts) {
  return [&contexts](std::span<const TokenId> tokens, float* h) {
    const Eigen::Index row = tokens.empty() ? 0 : (tokens.back() * 31 + 1) % contexts.rows();
    Eigen::Map<Eigen::VectorXf>(h, kDim) = contexts.row(row).transpose();
  };
}

TEST_P(MappedVocabularyTest, WritesWithTheFullLayersBeams) {
  const Question question = questions(world_).front();
  RowMajorMatrix H;
  const ContextModel model = model_of(world_.contexts);
  const BeamStep step = [&](std::span<const BeamRow> rows) {
    H.resize(static_cast<Eigen::Index>(rows.size()), kDim);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const TokenId text[] = {rows[i].token};
      model(text, H.row(static_cast<Eigen::Index>(i)).data());
    }
    return Contexts::of(H);
  };
  BeamSearchOptions options = {.beam = 4, .n_best = 3, .max_length = 6, .end = world_.token_of_row.front()};
  options.query = question.of_full(1);
  options.query.log_z_tolerance = 0.0;
  const std::vector<TokenId> start = {1, 2};
  const auto expected = beam_search(fused_, start, step, options);
  options.query = {.log_z_tolerance = 0.0};
  for (const auto& backend : world_.backends()) {
    const auto head = world_.mapped(backend);
    if (!head->certifies()) continue;
    const auto found = beam_search(*head, start, step, options);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t s = 0; s < found.size(); ++s) {
      ASSERT_EQ(found[s].size(), expected[s].size());
      for (std::size_t n = 0; n < found[s].size(); ++n) {
        EXPECT_EQ(found[s][n].tokens, expected[s][n].tokens);
        EXPECT_NEAR(found[s][n].log_prob, expected[s][n].log_prob, 1e-4);
      }
    }
  }
  options.end = kVocab;
  EXPECT_THROW(beam_search(*world_.mapped(Fused::make(world_.rows)), start, step, options),
               std::invalid_argument);
}

TEST_P(MappedVocabularyTest, DraftsForItself) {
  const ContextModel model = model_of(world_.contexts);
  const auto head = world_.mapped(world_.backends()[2]);
  const Question question = questions(world_).front();
  std::vector<TokenId> expected;
  std::vector<float> h(kDim);
  for (int i = 0; i < 20; ++i) {
    model(expected, h.data());
    expected.push_back(fused_.query(Eigen::Map<Eigen::VectorXf>(h.data(), kDim), question.of_full(1)).ids[0]);
  }
  std::vector<TokenId> text;
  RandomStream random(4);
  self_draft(text, 20, *head, model, random, {.sampling = {.temperature = 0.0}});
  EXPECT_EQ(text, expected);
  self_draft(text, 20, *head, model, random);
  for (const TokenId id : text) EXPECT_TRUE(world_.has_row[static_cast<std::size_t>(id)]);
}

TEST_P(MappedVocabularyTest, TellsProbabilitiesOfTokens) {
  const Question question = questions(world_).front();
  const std::shared_ptr<const TopKSoftmax> fused = world_.mapped(Fused::make(world_.rows));
  const LowRankLogProb whole = LowRankLogProb::build(world_.mapped(world_.backends()[2]), kDim);
  Workspace workspace;
  const Eigen::VectorXf h = context(6);
  const Reference reference(world_.full, h);
  const double log_z = exact_log_z(world_, h, question);
  for (TokenId id = 0; id < kVocab; id += 7) {
    const double by = log_prob_by(*fused, h.data(), kDim, id, workspace);
    const double low_rank = whole(h.data(), kDim, id, workspace);  // of full rank
    if (!world_.has_row[static_cast<std::size_t>(id)]) {
      EXPECT_EQ(by, -std::numeric_limits<double>::infinity());
      EXPECT_EQ(low_rank, -std::numeric_limits<double>::infinity());
      continue;
    }
    EXPECT_NEAR(by, reference.logits[static_cast<std::size_t>(id)] - log_z, 1e-5);
    EXPECT_NEAR(low_rank, by, 1e-4);
  }
  EXPECT_THROW(log_prob_by(*fused, h.data(), kDim, kVocab, workspace), std::invalid_argument);
}

TEST_P(MappedVocabularyTest, IsSavedWithWhatItWraps) {
  const testing::TemporaryFolder folder;
  for (const auto& backend : world_.backends()) {
    const auto head = world_.mapped(backend);
    SCOPED_TRACE(head->name());
    const auto path = folder.path() / "mapped.index";
    save_index(*head, path);
    const auto loaded = load_index(path, world_.rows);
    EXPECT_EQ(loaded->name(), head->name());
    EXPECT_EQ(loaded->vocab(), head->vocab());
    for (const Question& question : questions(world_)) {
      testing::expect_same_and_work(loaded->query(context(1), question.of_model(5)),
                                    head->query(context(1), question.of_model(5)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Padding, MappedVocabularyTest,
                         ::testing::Values(Padding::none, Padding::last, Padding::between));

TEST(MappedVocabulary, RefusesWhatIsNoMap) {
  const auto wrap = [](std::vector<TokenId> ids, std::size_t vocab = 10) {
    return error_of([&] { MappedVocabulary::wrap(Fused::make(random_layer(3, 4, 1)), ids, vocab); });
  };
  EXPECT_EQ(wrap({1, 5, 9}), "");
  EXPECT_EQ(wrap({-1, 5, -1}), "");
  EXPECT_EQ(wrap({1, 5}), "mapped: there are ids for 2 rows; the layer has 3");
  EXPECT_EQ(
      wrap({1, 5, 10}),
      "mapped: row 2 is token 10; ids must be at least 0 and below V = 10, or -1 for a row that is not a "
      "token");
  EXPECT_EQ(
      wrap({1, -2, 9}),
      "mapped: row 1 is token -2; ids must be at least 0 and below V = 10, or -1 for a row that is not a "
      "token");
  EXPECT_EQ(wrap({5, -1, 5}),
            "mapped: row 2 is token 5, row 0 before it token 5; ids must rise strictly, so that of equal "
            "logits the lower id goes first: sort the layer's rows by their ids");
  EXPECT_EQ(wrap({-1, -1, -1}), "mapped: no row is a token; at least 1 must be");
  EXPECT_EQ(wrap({1, 5, 9}, std::size_t{1} << 40),
            "mapped: V is 1099511627776; it must be at most 2147483647");
  EXPECT_EQ(error_of([] { MappedVocabulary::wrap(nullptr, {}, 10); }),
            "mapped: there is no backend to map the rows of");
  EXPECT_EQ(error_of([] {
              const auto head = MappedVocabulary::wrap(Fused::make(random_layer(3, 4, 1)), {1, 5, 9}, 10);
              MappedVocabulary::wrap(
                  Certify::wrap(std::make_shared<const MappedVocabulary>(*head), RowMajorMatrix(0, 4)),
                  {1, 5, 9}, 10);
            }),
            "mapped: the rows of certify:mapped:fused are mapped already; map them to the model's ids at "
            "once");
}

TEST(MappedVocabulary, QueriesSpeakOfTheModelsTokens) {
  const auto head = MappedVocabulary::wrap(Fused::make(random_layer(3, 4, 1)), {1, 70, 99}, 100);
  const Eigen::VectorXf h = testing::random_vector(4, 2);
  const std::vector<std::uint64_t> short_mask(1, ~std::uint64_t{0});
  EXPECT_THROW(head->query(h, {.allowed = short_mask}), std::invalid_argument);
  const TokenBias outside[] = {{100, 1.0F}};
  EXPECT_THROW(head->query(h, {.logit_bias = outside}), std::invalid_argument);
  Workspace workspace;
  std::vector<float> logits(1);
  const TokenId no_token[] = {100};
  EXPECT_THROW(head->logits_of({h.data(), 4}, no_token, {}, workspace, logits), std::invalid_argument);
  EXPECT_EQ(head->row_map()->row_of(70), 1);
  EXPECT_EQ(head->row_map()->row_of(71), RowMap::none);
}

// A file of 320 bytes may say so.
TEST(MappedVocabulary, KeepsNothingForTokensWithoutRows) {
  constexpr std::size_t kMost = std::numeric_limits<TokenId>::max();
  const std::vector<TokenId> ids = {0, 1, 63, 2'000'000'000, static_cast<TokenId>(kMost - 1)};
  const auto head = MappedVocabulary::wrap(Fused::make(random_layer(5, 4, 1)), ids, kMost);
  EXPECT_EQ(head->row_map()->bytes(), 5 * sizeof(TokenId) + 3 * 16U);
  EXPECT_EQ(head->query(testing::random_vector(4, 2), {.k = 9}).size(), 5U);
  for (std::size_t row = 0; row < ids.size(); ++row) {
    EXPECT_EQ(head->row_map()->row_of(ids[row]), static_cast<TokenId>(row));
  }
  for (const TokenId id : {2, 62, 64, 1'000'000'000, 2'000'000'001, static_cast<TokenId>(kMost - 2)}) {
    EXPECT_EQ(head->row_map()->row_of(id), RowMap::none) << id;
  }
}

TEST(MappedVocabulary, OfEqualLogitsTheLowerIdGoesFirst) {
  const SoftmaxLayer layer = SoftmaxLayer::own(RowMajorMatrix::Ones(200, 4));
  std::vector<TokenId> ids;
  for (TokenId row = 0; row < 200; ++row) ids.push_back(3 * row + 2);
  const auto head = MappedVocabulary::wrap(Fused::make(layer), ids, 700);
  const TopK answer = head->query(Eigen::VectorXf::Ones(4), {.k = 200});
  EXPECT_EQ(answer.ids, ids);
}

// Up to 16 + V/512 rows of padding are taken off what was learned of all rows.
TEST(MappedVocabulary, KeepsALearnedLogZWhereThereIsLittlePadding) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const RowMajorMatrix contexts = clustered_contexts(2000, kDim, 6, 9);
  const std::shared_ptr<const TopKSoftmax> over_rows =
      L2S::train_kmeans(layer, contexts.topRows(1800), {.clusters = 12, .budget = 60});
  ASSERT_TRUE(over_rows->log_z_error());
  for (const std::size_t padding : {10U, 60U}) {
    std::vector<TokenId> tokens(kVocab);
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      tokens[row] = row < padding ? RowMap::none : static_cast<TokenId>(row);
    }
    const auto head = MappedVocabulary::wrap(over_rows, tokens, kVocab);
    const bool is_little = padding == 10;
    EXPECT_EQ(head->log_z_error().has_value(), is_little);
    const auto is_token = [padding](TokenId row) { return static_cast<std::size_t>(row) >= padding; };
    std::vector<double> errors;
    for (Eigen::Index i = 1800; i < contexts.rows(); ++i) {
      const Eigen::VectorXf h = contexts.row(i);
      const TopK answer = head->query(h, {.k = 3});
      if (answer.normalizer == Normalizer::exact) continue;  // a list was too short
      EXPECT_EQ(answer.normalizer, is_little ? Normalizer::learned : Normalizer::candidates);
      errors.push_back(std::abs(answer.log_z - Reference(layer, h).edited(is_token, {}).log_z));
    }
    ASSERT_GT(errors.size(), 100U);
    std::sort(errors.begin(), errors.end());
    if (is_little) {
      EXPECT_LT(errors[errors.size() / 2], 2.0 * head->log_z_error()->median);
    }
  }
}

}  // namespace
}  // namespace topksoftmax
