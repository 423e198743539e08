// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/distribution_of.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <utility>
#include <vector>

#include "decoding/expected_distribution.hpp"
#include "decoding/sampling_cases.hpp"
#include "support/errors.hpp"
#include "support/layers.hpp"
#include "support/reference.hpp"

namespace topksoftmax {
namespace {

using testing::expected_distribution;
using testing::kSamplingCases;
using testing::refusal;

TEST(DistributionOf, DistributionsAreThoseOfTheReference) {
  const testing::Reference reference(testing::random_layer(300, 24, 3), testing::random_vector(24, 9));
  const std::vector<float> logits(reference.logits.begin(), reference.logits.end());
  for (const SamplingOptions& options : kSamplingCases) {
    const std::vector<double> expected = expected_distribution(reference.logits, options);
    const Distribution dense = distribution_of(logits, options);
    for (std::size_t id = 0; id < expected.size(); ++id) {
      EXPECT_NEAR(dense[static_cast<TokenId>(id)], expected[id], 1e-5);
    }
  }
}

TEST(DistributionOf, TheHighestTemperatureMakesAllowedTokensEquallyProbable) {
  std::vector<float> logits(200);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = 0.1F * static_cast<float>(i);
  for (std::size_t i = 0; i < 100; ++i) logits[2 * i] = -std::numeric_limits<float>::infinity();
  for (const auto& [top_p, stay] : {std::pair(1.0, 100), std::pair(0.295, 30)}) {
    const Distribution distribution = distribution_of(logits, {.temperature = 1e30, .top_p = top_p});
    for (TokenId id = 0; id < 200; ++id) {
      EXPECT_NEAR(distribution[id], id % 2 == 1 && id >= 200 - 2 * stay ? 1.0 / stay : 0.0, 1e-9) << id;
    }
  }
}

TEST(DistributionOf, DistributionOfAnAnswerIsOverItsTokens) {
  TopK answer;
  answer.ids = {9, 2, 4};
  answer.logits = {std::log(4.0F), std::log(2.0F), std::log(2.0F)};
  const Distribution plain = distribution_of(answer, {});
  EXPECT_NEAR(plain[9], 0.5, 1e-6);
  EXPECT_NEAR(plain[2], 0.25, 1e-6);
  EXPECT_NEAR(plain[4], 0.25, 1e-6);
  const Distribution nucleus = distribution_of(answer, {.top_p = 0.6});
  EXPECT_NEAR(nucleus[9], 2.0 / 3.0, 1e-6);
  EXPECT_EQ(nucleus[4], 0.0);
  EXPECT_EQ(distribution_of(answer, {.temperature = 0.0})[9], 1.0);
}

TEST(DistributionOf, RefusesLogitsThatAreNoNumbers) {
  const float infinity = std::numeric_limits<float>::infinity();
  const SamplingOptions options[] = {{}, {.top_k = 3}, {.top_p = 0.9}, {.temperature = 0.0}};
  for (const SamplingOptions& some : options) {
    std::vector<float> logits(40, 0.5F);
    logits[3] = -infinity;
    EXPECT_EQ(distribution_of(logits, some)[3], 0.0);
    logits[7] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(refusal([&] { distribution_of(logits, some); }),
              "distribution_of: the logit of token 7 is NaN; it must be finite, or -inf where the token is "
              "forbidden");
    logits[5] = infinity;
    EXPECT_EQ(refusal([&] { distribution_of(logits, some); }),
              "distribution_of: the logit of token 5 is inf; it must be finite, or -inf where the token is "
              "forbidden");
  }
}

TEST(DistributionOf, RefusesAnAnswerWithoutTokens) {
  EXPECT_THROW(distribution_of(TopK(), {}), std::invalid_argument);
}

}  // namespace
}  // namespace topksoftmax
