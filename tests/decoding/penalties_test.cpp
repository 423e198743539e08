// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/penalties.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include "conformance/backends.hpp"
#include "support/layers.hpp"
#include "support/reference.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/mapped_vocabulary.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::random_layer;
using testing::Reference;

constexpr Eigen::Index kVocab = 600;
constexpr Eigen::Index kDim = 24;

const std::vector<TokenId> kHistory = {3, 599, 3, 17, 0, 3, 42};

/// Logits with penalties, in plain loops.
std::vector<double> penalised(std::vector<double> logits, const Penalties& penalties) {
  for (std::size_t token = 0; token < logits.size(); ++token) {
    const auto count = std::count(kHistory.begin(), kHistory.end(), static_cast<TokenId>(token));
    if (count == 0) continue;
    double& z = logits[token];
    z = z > 0.0 ? z / penalties.repetition : z * penalties.repetition;
    z -= penalties.presence + penalties.frequency * static_cast<double>(count);
  }
  return logits;
}

TEST(PenaltyBiases, MakeEveryBackendAnswerByPenalisedLogits) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 3);
  const RowMajorMatrix contexts = clustered_contexts(300, kDim, 6, 9);
  const TokenBias given[] = {{1, 0.5F}, {17, 1.5F}, {100, -1.0F}};
  const Workspace workspace;
  for (const Penalties& penalties :
       {Penalties{}, Penalties{.repetition = 1.3}, Penalties{.repetition = 0.8, .presence = 0.4},
        Penalties{.repetition = 1.1, .presence = -0.5, .frequency = 0.7}}) {
    PenaltyBiases biases(penalties);
    for (const testing::Backend& backend : testing::all_backends()) {
      const auto head = backend.make(layer, contexts);
      for (Eigen::Index row = 0; row < 5; ++row) {
        const Eigen::VectorXf h = contexts.row(row);
        Reference reference(layer, h);
        for (const TokenBias& bias : given) {
          reference.logits[static_cast<std::size_t>(bias.id)] += static_cast<double>(bias.bias);
        }
        const std::vector<double> expected = penalised(reference.logits, penalties);
        const auto found = biases(*head, {h.data(), kDim}, kHistory, {.logit_bias = given}, workspace);
        const TopK answer = head->query(h, {.k = 5, .logit_bias = found});
        for (std::size_t i = 0; i < answer.size(); ++i) {
          EXPECT_NEAR(answer.logits[i], expected[static_cast<std::size_t>(answer.ids[i])], 1e-4)
              << backend.name;
        }
        if (!head->certifies()) continue;
        std::vector<double> sorted = expected;
        std::sort(sorted.rbegin(), sorted.rend());
        for (std::size_t i = 0; i < answer.size(); ++i) EXPECT_NEAR(answer.logits[i], sorted[i], 1e-4);
        double sum = 0.0;
        for (const double z : expected) sum += std::exp(z);
        EXPECT_LE(answer.log_z_low, std::log(sum) + 1e-4);
        EXPECT_GE(answer.log_z_high, std::log(sum) - 1e-4);
      }
    }
  }
}

TEST(PenaltyBiases, LeaveTokensWithoutARowAsTheyAre) {
  const auto head = MappedVocabulary::wrap(Fused::make(random_layer(3, 4, 1)), {1, 5, 9}, 10);
  const std::vector<float> h = {0.5F, -1.0F, 2.0F, 0.25F};
  const TokenId history[] = {4, 5, 4};
  PenaltyBiases biases({.repetition = 1.5, .presence = 1.0});
  const std::span<const TokenBias> found = biases(*head, h, history, {}, Workspace());
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].id, 4);
  EXPECT_EQ(found[0].bias, 0.0F);
  EXPECT_EQ(found[1].id, 5);
  EXPECT_LT(found[1].bias, 0.0F);
  EXPECT_GT(found[1].bias, -10.0F);
}

TEST(PenaltyBiases, AreThoseOfTheQueryWithoutAHistory) {
  const auto head = Fused(random_layer(kVocab, kDim, 3));
  const std::vector<float> h(kDim, 0.1F);
  const TokenBias given[] = {{1, 0.5F}, {17, 1.5F}};
  PenaltyBiases biases({.repetition = 1.3});
  const auto found = biases(head, h, {}, {.logit_bias = given}, Workspace());
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].id, 1);
  EXPECT_EQ(found[1].bias, 1.5F);
}

TEST(PenaltyBiases, AreFiniteWhateverPenaltiesAddUpTo) {
  const auto head = Fused(random_layer(kVocab, kDim, 3));
  const std::vector<float> h(kDim, 0.1F);
  for (const double repetition : {1e308, 1e-308}) {
    for (const double presence : {-1e308, 0.0, 1e308}) {
      for (const double frequency : {-1e308, 1e308}) {
        PenaltyBiases biases({.repetition = repetition, .presence = presence, .frequency = frequency});
        for (const TokenBias& bias : biases(head, h, kHistory, {}, Workspace())) {
          EXPECT_TRUE(std::isfinite(bias.bias)) << repetition << ' ' << presence << ' ' << frequency;
        }
      }
    }
  }
}

TEST(PenaltyBiases, RefusesWhatNoLogitCanBear) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const Penalties& penalties :
       {Penalties{.repetition = 0.0}, Penalties{.repetition = -1.0}, Penalties{.repetition = kInfinity},
        Penalties{.repetition = std::nan("")}, Penalties{.presence = kInfinity},
        Penalties{.frequency = std::nan("")}}) {
    EXPECT_THROW(PenaltyBiases{penalties}, std::invalid_argument);
  }
  try {
    check(Penalties{.repetition = -1e-7});
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "penalties: repetition is -1e-07; it must be finite and above 0");
  }
  const auto head = Fused(random_layer(kVocab, kDim, 3));
  const std::vector<float> h(kDim, 0.1F);
  const std::vector<TokenId> unknown = {3, 600};
  PenaltyBiases biases({.repetition = 1.3});
  EXPECT_THROW(biases(head, h, unknown, {}, Workspace()), std::invalid_argument);
}

}  // namespace
}  // namespace topksoftmax
