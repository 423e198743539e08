// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/draw_each.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "conformance/backends.hpp"
#include "support/errors.hpp"
#include "support/executors.hpp"
#include "support/layers.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/parallel/executor.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::random_layer;

const SamplingOptions kOptions[] = {
    {},
    {.temperature = 0.0},
    {.temperature = 0.7, .top_p = 0.9},
    {.top_k = 10},
    {.typical_p = 0.6},
    {.top_n_sigma = 1.0},
    {.min_p = 0.1},
    {.temperature = 1.3, .log_z_error = 0.05},
};

/// Requests that differ in everything, for a vocabulary.
class Requests {
 public:
  Requests(std::size_t count, std::size_t vocab) : mask_(vocab), few_(vocab) {
    for (std::size_t id = 0; id < vocab; id += 3) mask_.allow(static_cast<TokenId>(id));
    for (std::size_t id = 5; id < vocab; id += 97) few_.allow(static_cast<TokenId>(id));
    for (std::size_t i = 0; i < count; ++i) {
      samplers_.emplace_back(kOptions[i % std::size(kOptions)]);
      random_.emplace_back(100 + i);
    }
    for (std::size_t i = 0; i < count; ++i) {
      QueryOptions query = {.probabilities = i % 2 == 0};
      if (i % 3 == 1) query.allowed = mask_;
      if (i % 5 == 3) query.allowed = few_;
      if (i % 4 == 2) query.logit_bias = bias_;
      requests.push_back({&samplers_[i], &random_[i], query});
    }
  }

  /// What their samplers draw one by one.
  std::vector<SampledToken> draw_one_by_one(const TopKSoftmax& head, const Contexts& contexts) {
    std::vector<SampledToken> tokens;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const DrawRequest& request = requests[i];
      tokens.push_back(
          request.sampler->draw(head, contexts.row(i), contexts.dim, *request.random, request.query));
    }
    return tokens;
  }

  std::vector<DrawRequest> requests;

 private:
  TokenMask mask_;
  TokenMask few_;
  std::vector<TokenBias> bias_ = {{4, 2.5F}, {7, -1.0F}};
  std::vector<Sampler> samplers_;
  std::vector<RandomStream> random_;
};

/// A batch draws what its samplers draw alone, token after token, and looks at as many tokens for it.
void expect_same_draws(const TopKSoftmax& head, const Contexts& contexts, std::size_t threads,
                       const Executor& executor) {
  Requests alone(contexts.count, head.vocab());
  Requests together(contexts.count, head.vocab());
  std::vector<Workspace> workspaces(threads);
  std::vector<SampledToken> tokens(contexts.count);
  for (int round = 0; round < 3; ++round) {
    const std::vector<SampledToken> expected = alone.draw_one_by_one(head, contexts);
    draw_each(head, contexts, together.requests, tokens, workspaces, executor);
    for (std::size_t i = 0; i < contexts.count; ++i) {
      ASSERT_EQ(tokens[i].id, expected[i].id) << i;
      ASSERT_EQ(tokens[i].logit, expected[i].logit) << i;
      ASSERT_EQ(tokens[i].log_prob, expected[i].log_prob) << i;
      ASSERT_EQ(tokens[i].log_prob_low, expected[i].log_prob_low) << i;
      ASSERT_EQ(tokens[i].log_prob_high, expected[i].log_prob_high) << i;
    }
  }
  for (std::size_t i = 0; i < contexts.count; ++i) {
    EXPECT_EQ(together.requests[i].sampler->full_scans(), alone.requests[i].sampler->full_scans()) << i;
    EXPECT_EQ(together.requests[i].sampler->trials(), alone.requests[i].sampler->trials()) << i;
  }
}

TEST(DrawEach, DrawsWhatEachSamplerDrawsAlone) {
  const SoftmaxLayer layer = random_layer(700, 24, 3);
  const RowMajorMatrix H = 0.4F * clustered_contexts(300, 24, 6, 9);
  for (const testing::Backend& backend : testing::all_backends()) {
    SCOPED_TRACE(backend.name);
    const auto head = backend.make(layer, H);
    for (const std::size_t count : {1U, 2U, 40U}) {
      for (const std::size_t threads : {1U, 3U}) {
        expect_same_draws(*head, {H.data(), count, 24, 24}, threads, testing::ReversedExecutor());
      }
    }
  }
}

TEST(DrawEach, SharesWhatLargeHeadsRead) {
  const SoftmaxLayer layer = random_layer(9000, 64, 21);
  const RowMajorMatrix H = 0.3F * clustered_contexts(200, 64, 10, 22);
  std::vector<std::unique_ptr<TopKSoftmax>> heads;
  heads.push_back(Fused::make(layer));
  heads.push_back(Certified::build(layer, H, {.prefix = 64, .width = 64, .boxes = BoundBoxes::never}));
  for (const auto& head : heads) {
    SCOPED_TRACE(head->name());
    // More than 64 contexts that take all logits, every other row of H.
    expect_same_draws(*head, {H.data(), 80, 64, 128}, 1, SerialExecutor());
    const testing::CountedExecutor executor;
    expect_same_draws(*head, {H.data(), 80, 64, 128}, 3, executor);
    EXPECT_GT(executor.loops(), 0U);
  }
}

TEST(DrawEach, OneRequestHasAllThreads) {
  const SoftmaxLayer layer = random_layer(9000, 64, 21);
  const RowMajorMatrix H = clustered_contexts(200, 64, 10, 22);
  const auto head = Certified::build(layer, H, {.prefix = 64, .width = 64, .boxes = BoundBoxes::never});
  const testing::CountedExecutor executor;
  expect_same_draws(*head, {H.data(), 1, 64, 64}, 3, executor);
  EXPECT_GT(executor.loops(), 0U);
}

TEST(DrawEach, RequestsMayShareAStream) {
  const SoftmaxLayer layer = random_layer(700, 24, 3);
  const RowMajorMatrix H = clustered_contexts(8, 24, 6, 9);
  const auto head = Fused::make(layer);
  std::vector<Sampler> samplers(8);
  RandomStream random(5);
  RandomStream same(5);
  std::vector<DrawRequest> requests;
  std::vector<TokenId> expected;
  for (std::size_t i = 0; i < 8; ++i) {
    requests.push_back({&samplers[i], &random, {}});
    expected.push_back(Sampler().draw(*head, H.row(static_cast<Eigen::Index>(i)), same).id);
  }
  std::vector<SampledToken> tokens(8);
  std::vector<Workspace> workspaces(2);
  draw_each(*head, Contexts::of(H), requests, tokens, workspaces);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(tokens[i].id, expected[i]);
}

/// A batch that can be drawn, until a test spoils it.
struct Batch {
  void draw() { draw_each(*head, contexts, requests, std::span(tokens).first(count), room); }

  SoftmaxLayer layer = random_layer(100, 8, 3);
  RowMajorMatrix H = clustered_contexts(4, 8, 2, 9);
  std::unique_ptr<TopKSoftmax> head = Fused::make(layer);
  Contexts contexts = Contexts::of(H);
  std::vector<Sampler> samplers = std::vector<Sampler>(4);
  std::vector<RandomStream> random = std::vector<RandomStream>(4, RandomStream(1));
  std::vector<DrawRequest> requests = {{&samplers[0], &random[0], {}},
                                       {&samplers[1], &random[1], {}},
                                       {&samplers[2], &random[2], {}},
                                       {&samplers[3], &random[3], {}}};
  std::vector<SampledToken> tokens = std::vector<SampledToken>(4, {.id = -7});
  std::size_t count = 4;
  std::vector<Workspace> room = std::vector<Workspace>(1);
};

TEST(DrawEach, RefusesWhatCannotBeDrawnBeforeAnyStreamIsAsked) {
  const std::vector<TokenBias> unordered = {{4, 1.0F}, {2, 1.0F}};
  const TokenMask small(30);
  const TokenMask none(100);
  const std::pair<std::function<void(Batch&)>, std::string> cases[] = {
      {[](Batch& batch) { batch.room.clear(); }, "draw_each: there is no workspace; one a thread is needed"},
      {[](Batch& batch) { batch.requests.pop_back(); },
       "draw_each: there are 4 contexts and 3 requests; they must be as many"},
      {[](Batch& batch) { batch.count = 2; },
       "draw_each: there are 4 contexts and 2 tokens; they must be as many"},
      {[](Batch& batch) { batch.requests[2].sampler = nullptr; },
       "draw_each: context 2: there is no sampler"},
      {[](Batch& batch) { batch.requests[3].random = nullptr; },
       "draw_each: context 3: there is no stream of random numbers"},
      {[](Batch& batch) { batch.requests[3].sampler = batch.requests[1].sampler; },
       "draw_each: two requests have the same sampler"},
      {[](Batch& batch) { batch.H(1, 3) = std::numeric_limits<float>::quiet_NaN(); },
       "draw_each: context 1: query: h[3] is NaN; every value must be finite"},
      {[](Batch& batch) { batch.contexts.dim = 7; }, "draw_each: context 0: query: h has 7 values"},
      {[](Batch& batch) { batch.requests[3].query.k = 0; },
       "draw_each: context 3: query: k is 0; at least 1 token must be asked for"},
      {[&](Batch& batch) { batch.requests[1].query.logit_bias = unordered; },
       "draw_each: context 1: query: logit_bias names token 2 after 4"},
      {[&](Batch& batch) { batch.requests[1].query.allowed = small; },
       "draw_each: context 1: query: the mask has bits for 64 tokens"},
      {[&](Batch& batch) { batch.requests[2].query.allowed = none; },
       "draw_each: context 2: sampling: no token is allowed"},
  };
  for (const auto& [spoil, message] : cases) {
    SCOPED_TRACE(message);
    Batch batch;
    spoil(batch);
    const std::string found = testing::refusal([&] { batch.draw(); });
    EXPECT_EQ(found.substr(0, message.size()), message);
    for (RandomStream& random : batch.random) EXPECT_EQ(random.bits(), RandomStream(1).bits());
    for (const SampledToken& token : batch.tokens) EXPECT_EQ(token.id, -7);
  }
}

TEST(DrawEach, OfNothingIsNothing) {
  Batch batch;
  batch.contexts = Contexts::none(8);
  batch.requests.clear();
  batch.count = 0;
  batch.draw();
  EXPECT_EQ(batch.tokens[0].id, -7);
}

}  // namespace
}  // namespace topksoftmax
