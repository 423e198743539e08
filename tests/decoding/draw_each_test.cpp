// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/draw_each.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "conformance/backends.hpp"
#include "support/executors.hpp"
#include "support/layers.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/fused.hpp"

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

/// Requests that differ in everything, for a vocabulary, and what they draw one by one.
class Requests {
 public:
  Requests(std::size_t count, std::size_t vocab) : mask_(vocab) {
    for (std::size_t id = 0; id < vocab; id += 3) mask_.allow(static_cast<TokenId>(id));
    samplers_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      samplers_.emplace_back(kOptions[i % std::size(kOptions)]);
      random_.emplace_back(100 + i);
    }
    for (std::size_t i = 0; i < count; ++i) {
      QueryOptions query = {.probabilities = i % 2 == 0};
      if (i % 3 == 1) query.allowed = mask_;
      if (i % 4 == 2) query.logit_bias = bias_;
      requests.push_back({&samplers_[i], &random_[i], query});
    }
  }

  std::vector<SampledToken> draw_one_by_one(const TopKSoftmax& head, const Contexts& contexts) {
    std::vector<SampledToken> tokens;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      tokens.push_back(samplers_[i].draw(head, contexts.row(i), contexts.dim, random_[i], requests[i].query));
    }
    return tokens;
  }

  std::vector<DrawRequest> requests;

 private:
  TokenMask mask_;
  std::vector<TokenBias> bias_ = {{4, 2.5F}, {7, -1.0F}};
  std::vector<Sampler> samplers_;
  std::vector<RandomStream> random_;
};

TEST(DrawEach, DrawsWhatEachSamplerDrawsAlone) {
  constexpr std::size_t kCount = 40;
  const SoftmaxLayer layer = random_layer(700, 24, 3);
  const RowMajorMatrix H = 0.4F * clustered_contexts(300, 24, 6, 9);
  const Contexts contexts = {H.data(), kCount, 24, 24};
  for (const testing::Backend& backend : testing::all_backends()) {
    SCOPED_TRACE(backend.name);
    const auto head = backend.make(layer, H);
    for (const std::size_t threads : {1U, 3U}) {
      Requests alone(kCount, 700);
      Requests together(kCount, 700);
      std::vector<Workspace> workspaces(threads);
      std::vector<SampledToken> tokens(kCount);
      for (int round = 0; round < 3; ++round) {
        const std::vector<SampledToken> expected = alone.draw_one_by_one(*head, contexts);
        draw_each(*head, contexts, together.requests, tokens, workspaces, testing::ReversedExecutor());
        for (std::size_t i = 0; i < kCount; ++i) {
          ASSERT_EQ(tokens[i].id, expected[i].id) << i;
          ASSERT_EQ(tokens[i].logit, expected[i].logit) << i;
          ASSERT_EQ(tokens[i].log_prob, expected[i].log_prob) << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace topksoftmax
