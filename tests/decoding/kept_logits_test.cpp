// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/kept_logits.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "support/errors.hpp"
#include "topksoftmax/decoding/distribution.hpp"
#include "topksoftmax/decoding/sampling_options.hpp"
#include "topksoftmax/decoding/token_gumbels.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {
namespace {

constexpr float kNoLogit = -std::numeric_limits<float>::infinity();

const SamplingOptions kOptions[] = {{},
                                    {.temperature = 0.0},
                                    {.temperature = 2.5},
                                    {.top_k = 5},
                                    {.temperature = 0.7, .top_p = 0.8},
                                    {.min_p = 0.05},
                                    {.typical_p = 0.6},
                                    {.top_n_sigma = 1.0},
                                    {.xtc_probability = 1.0, .xtc_threshold = 0.05}};

/// Of 1,000 tokens some, ascending, with logits on a grid, so that many are equal.
struct Some {
  explicit Some(std::size_t count) : all(1000, kNoLogit) {
    std::mt19937 random(static_cast<unsigned>(count));
    std::vector<TokenId> every(all.size());
    for (std::size_t i = 0; i < every.size(); ++i) every[i] = static_cast<TokenId>(i);
    std::shuffle(every.begin(), every.end(), random);
    ids.assign(every.begin(), every.begin() + static_cast<std::ptrdiff_t>(count));
    std::sort(ids.begin(), ids.end());
    for (const TokenId id : ids) {
      logits.push_back(0.25F * static_cast<float>(random() % 24));
      all[static_cast<std::size_t>(id)] = logits.back();
    }
  }

  std::vector<float> all;
  std::vector<TokenId> ids;
  std::vector<float> logits;
};

TEST(KeptLogits, OfSomeTokensDrawTheTokenThatAllOfThemDraw) {
  for (const std::size_t count : {1U, 2U, 7U, 64U, 300U, 1000U}) {
    const Some some(count);
    for (const SamplingOptions& options : kOptions) {
      const bool excludes = options.xtc_probability > 0.0;
      const detail::KeptLogits of_all(some.all, options, excludes);
      const detail::KeptLogits of_some(some.logits, options, excludes);
      for (std::uint64_t key = 0; key < 60; ++key) {
        const SampledToken expected = of_all.draw(TokenGumbels(key));
        const SampledToken token = of_some.draw(TokenGumbels(key), some.ids);
        ASSERT_EQ(token.id, expected.id) << count;
        ASSERT_EQ(token.logit, expected.logit);
        ASSERT_NEAR(token.log_prob, expected.log_prob, 1e-6);
        ASSERT_EQ(token.log_prob_low, token.log_prob);
        ASSERT_EQ(token.log_prob_high, token.log_prob);
      }
    }
  }
}

/// Logits of 20,000 tokens, of which every tenth is forbidden; on a grid, and the steeper the fewer tokens
/// have most of the mass.
std::vector<float> many_logits(float steepness) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> logits(20000);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    logits[i] = i % 10 == 3 ? kNoLogit : std::round(16.0F * steepness * normal(random)) / 16.0F;
  }
  return logits;
}

/// The tokens, best first, and their probabilities at a temperature.
std::vector<std::pair<TokenId, double>> ranked(const std::vector<float>& logits, double temperature) {
  const double best = *std::max_element(logits.begin(), logits.end());
  std::vector<std::pair<TokenId, double>> tokens;
  double sum = 0.0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] == kNoLogit) continue;
    tokens.emplace_back(static_cast<TokenId>(i),
                        std::exp((static_cast<double>(logits[i]) - best) / temperature));
    sum += tokens.back().second;
  }
  for (auto& token : tokens) token.second /= sum;
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return tokens;
}

/// Those that stay are the first `expected` of these, with their probabilities; tokens whose cut is within
/// rounding may be one more or one less.
void expect_first(const detail::KeptLogits& kept, const std::vector<std::pair<TokenId, double>>& tokens,
                  double share) {
  double mass = 0.0;
  std::size_t expected = 0;
  while (expected < tokens.size() && mass < share) mass += tokens[expected++].second;
  const Distribution found = kept.distribution();
  ASSERT_NEAR(static_cast<double>(found.size()), static_cast<double>(expected), 1.0);
  double inside = 0.0;
  for (std::size_t i = 0; i < found.size(); ++i) inside += tokens[i].second;
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_TRUE(kept.stays(tokens[i].first)) << i;
    ASSERT_NEAR(kept[tokens[i].first], tokens[i].second / inside, 1e-6 * tokens[i].second / inside) << i;
  }
  for (std::size_t i = found.size(); i < tokens.size(); ++i) ASSERT_FALSE(kept.stays(tokens[i].first)) << i;
}

// Of few tokens, of some, and of most.
TEST(KeptLogits, ANucleusIsThatOfTheSortedTokens) {
  for (const float steepness : {6.0F, 2.5F, 1.5F, 0.1F}) {
    const std::vector<float> logits = many_logits(steepness);
    for (const double temperature : {1.0, 0.7}) {
      const auto tokens = ranked(logits, temperature);
      for (const double share : {0.05, 0.5, 0.9, 0.999}) {
        SCOPED_TRACE(::testing::PrintToString(steepness) + ", " + ::testing::PrintToString(share));
        const SamplingOptions options = {.temperature = temperature, .top_p = share};
        expect_first(detail::KeptLogits(logits, options, false), tokens, share);
      }
    }
  }
}

TEST(KeptLogits, TypicalTokensAreThoseNearestToTheEntropy) {
  for (const float steepness : {6.0F, 2.5F, 0.5F}) {
    const std::vector<float> logits = many_logits(steepness);
    for (const double temperature : {1.0, 0.7}) {
      auto tokens = ranked(logits, temperature);
      double entropy = 0.0;
      for (const auto& [id, probability] : tokens) {
        if (probability > 0.0) entropy -= probability * std::log(probability);
      }
      const auto distance = [entropy](double probability) {
        return std::abs(-std::log(probability) - entropy);
      };
      std::stable_sort(tokens.begin(), tokens.end(),
                       [&](const auto& a, const auto& b) { return distance(a.second) < distance(b.second); });
      for (const double share : {0.2, 0.9}) {
        const detail::KeptLogits kept(logits, {.temperature = temperature, .typical_p = share}, false);
        double mass = 0.0;
        std::size_t taken = 0;
        while (mass < share) mass += tokens[taken++].second;
        const double farthest = distance(tokens[taken - 1].second);
        for (const auto& [id, probability] : tokens) {
          if (std::abs(distance(probability) - farthest) < 1e-6) continue;
          ASSERT_EQ(kept.stays(id), distance(probability) < farthest) << id;
        }
      }
    }
  }
}

// In whatever form they are kept.
TEST(KeptLogits, CutsFollowEachOther) {
  const std::vector<float> logits = many_logits(2.5F);
  const auto tokens = ranked(logits, 1.0);
  for (const std::size_t count : {1U, 50U, 17000U, 18000U, 20000U, 30000U}) {
    const detail::KeptLogits kept(logits, {.top_k = count, .top_p = 0.8}, false);
    auto best = tokens;
    best.resize(std::min(count, best.size()));
    double mass = 0.0;
    for (const auto& token : best) mass += token.second;
    for (auto& token : best) token.second /= mass;
    expect_first(kept, best, 0.8);
  }
}

TEST(KeptLogits, AreOfSomeTokenAtLeast) {
  const std::vector<float> none = {kNoLogit, kNoLogit};
  for (const std::span<const float> logits : {std::span(none), std::span(none).first(0)}) {
    EXPECT_EQ(testing::refusal([&] { detail::KeptLogits(logits, SamplingOptions(), false); }),
              "sampling: no token is allowed");
  }
}

}  // namespace
}  // namespace topksoftmax
