// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/kept_logits.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

#include "support/errors.hpp"
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

TEST(KeptLogits, AreOfSomeTokenAtLeast) {
  const std::vector<float> none = {kNoLogit, kNoLogit};
  for (const std::span<const float> logits : {std::span(none), std::span(none).first(0)}) {
    EXPECT_EQ(testing::refusal([&] { detail::KeptLogits(logits, SamplingOptions(), false); }),
              "sampling: no token is allowed");
  }
}

}  // namespace
}  // namespace topksoftmax
