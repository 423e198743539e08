// SPDX-License-Identifier: Apache-2.0
//
// Decoding over ranks: what stands on a head stands on slices of it unchanged.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "distributed/ranks.hpp"
#include "support/layers.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/decoding/beam_search.hpp"
#include "topksoftmax/decoding/draw_each.hpp"
#include "topksoftmax/decoding/perplexity.hpp"
#include "topksoftmax/decoding/sampling.hpp"
#include "topksoftmax/distributed/sharded_softmax.hpp"
#include "topksoftmax/fused.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::random_layer;
using testing::sharded;
using testing::Spread;
using testing::spreads;

constexpr Eigen::Index kDim = 24;

struct World {
  SoftmaxLayer layer = random_layer(2000, kDim, 4);
  RowMajorMatrix train = clustered_contexts(300, kDim, 12, 2);
  RowMajorMatrix test = clustered_contexts(40, kDim, 12, 2).bottomRows(12);

  std::vector<std::pair<std::string, std::unique_ptr<ShardedSoftmax>>> heads() const {
    std::vector<std::pair<std::string, std::unique_ptr<ShardedSoftmax>>> made;
    for (const Spread& spread : spreads()) {
      made.emplace_back(spread.name, sharded(layer, spread, &Fused::make));
      made.emplace_back(spread.name + ", certified", sharded(layer, spread, [this](SoftmaxLayer slice) {
                          return Certified::build(std::move(slice), train);
                        }));
    }
    return made;
  }
};

TEST(ShardedDecoding, ASeedDrawsTheTokenOfOneProcess) {
  const World world;
  const auto whole = Fused::make(world.layer);
  const std::vector<SamplingOptions> kinds = {{},
                                              {.temperature = 0.5},
                                              {.temperature = 2.0},
                                              {.top_k = 20},
                                              {.top_p = 0.8},
                                              {.temperature = 1.3, .min_p = 0.05},
                                              {.typical_p = 0.7}};
  for (const auto& [name, head] : world.heads()) {
    for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
      SCOPED_TRACE(name + ", kind " + std::to_string(kind));
      Sampler ours(kinds[kind]);
      Sampler theirs(kinds[kind]);
      RandomStream our_stream(17);
      RandomStream their_stream(17);
      for (Eigen::Index i = 0; i < world.test.rows(); ++i) {
        const Eigen::VectorXf h = world.test.row(i);
        const SampledToken drawn = ours.draw(*head, h, our_stream);
        const SampledToken expected = theirs.draw(*whole, h, their_stream);
        EXPECT_EQ(drawn.id, expected.id);
        EXPECT_EQ(drawn.logit, expected.logit);
        EXPECT_LE(drawn.log_prob_low, expected.log_prob + 1e-5);
        EXPECT_GE(drawn.log_prob_high, expected.log_prob - 1e-5);
      }
    }
  }
}

TEST(ShardedDecoding, ManyRequestsDrawTheTokensOfOneProcess) {
  const World world;
  const auto whole = Fused::make(world.layer);
  const auto count = static_cast<std::size_t>(world.test.rows());
  const SamplingOptions kinds[] = {{}, {.top_k = 20}, {.typical_p = 0.7}, {.temperature = 0.0}};
  const auto draw = [&](const TopKSoftmax& head) {
    std::vector<Sampler> samplers;
    std::vector<RandomStream> streams;
    for (std::size_t i = 0; i < count; ++i) {
      samplers.emplace_back(kinds[i % std::size(kinds)]);
      streams.emplace_back(i);
    }
    std::vector<DrawRequest> requests;
    for (std::size_t i = 0; i < count; ++i) requests.push_back({&samplers[i], &streams[i], {}});
    std::vector<SampledToken> tokens(count);
    std::vector<Workspace> workspaces(2);
    draw_each(head, Contexts::of(world.test), requests, tokens, workspaces);
    return tokens;
  };
  const std::vector<SampledToken> expected = draw(*whole);
  for (const auto& [name, head] : world.heads()) {
    SCOPED_TRACE(name);
    const std::vector<SampledToken> drawn = draw(*head);
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(drawn[i].id, expected[i].id);
      EXPECT_EQ(drawn[i].logit, expected[i].logit);
    }
  }
}

TEST(ShardedDecoding, BeamSearchFindsTheSentencesOfOneProcess) {
  const World world;
  const RowMajorMatrix embedding = testing::random_matrix(2000, kDim, 9);
  const std::vector<TokenId> start = {5, 1500};
  const BeamSearchOptions options = {.beam = 4, .max_length = 6, .end = 3};
  const auto search = [&](const TopKSoftmax& head) {
    RowMajorMatrix states = RowMajorMatrix::Zero(2, kDim);
    const BeamStep step = [&](std::span<const BeamRow> rows) {
      RowMajorMatrix next(static_cast<Eigen::Index>(rows.size()), kDim);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        next.row(static_cast<Eigen::Index>(i)) =
            (0.6F * states.row(static_cast<Eigen::Index>(rows[i].parent)) + embedding.row(rows[i].token))
                .array()
                .tanh();
      }
      states = std::move(next);
      return Contexts::of(states);
    };
    return beam_search(head, start, step, options);
  };
  const auto expected = search(*Fused::make(world.layer));
  for (const auto& [name, head] : world.heads()) {
    const auto found = search(*head);
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t sentence = 0; sentence < found.size(); ++sentence) {
      ASSERT_FALSE(found[sentence].empty());
      EXPECT_EQ(found[sentence].front().tokens, expected[sentence].front().tokens) << name;
      EXPECT_EQ(found[sentence].front().score, expected[sentence].front().score) << name;
    }
  }
}

TEST(ShardedDecoding, PerplexityIsThatOfOneProcess) {
  const World world;
  const auto whole = Fused::make(world.layer);
  for (const auto& [name, head] : world.heads()) {
    Workspace workspace;
    Perplexity ours;
    Perplexity theirs;
    for (Eigen::Index i = 0; i < world.test.rows(); ++i) {
      const Eigen::VectorXf h = world.test.row(i);
      const auto token = static_cast<TokenId>(i * 150);
      ours.add(log_prob_by(*head, h.data(), kDim, token, workspace));
      theirs.add(log_prob_by(*whole, h.data(), kDim, token, workspace));
    }
    if (name.ends_with("certified")) {
      EXPECT_NEAR(ours.value(), theirs.value(), 0.2 * theirs.value()) << name;
    } else {
      EXPECT_EQ(ours.value(), theirs.value()) << name;
    }
  }
}

}  // namespace
}  // namespace topksoftmax
