// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/perplexity.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "support/layers.hpp"
#include "support/reference.hpp"

namespace topksoftmax {
namespace {

using testing::Reference;

TEST(Perplexity, IsTheExponentialOfTheMeanSurprise) {
  Perplexity perplexity;
  EXPECT_TRUE(std::isnan(perplexity.value()));
  perplexity.add(std::log(0.5));
  perplexity.add(std::log(0.125));
  EXPECT_NEAR(perplexity.value(), 4.0, 1e-12);
  EXPECT_EQ(perplexity.tokens(), 2U);
}

TEST(Perplexity, ExactIsThatOfTheReference) {
  const SoftmaxLayer layer = testing::random_layer(300, 16, 4);
  Workspace workspace;
  for (unsigned seed = 0; seed < 10; ++seed) {
    const Eigen::VectorXf h = testing::random_vector(16, seed);
    const Reference reference(layer, h);
    for (const TokenId token : {0, 17, 299}) {
      EXPECT_NEAR(exact_log_prob(layer, h.data(), 16, token, workspace),
                  reference.logits[static_cast<std::size_t>(token)] - reference.log_z, 1e-5);
    }
  }
}

TEST(Perplexity, RefusesUnusableArguments) {
  const SoftmaxLayer layer = testing::random_layer(30, 4, 4);
  const Eigen::VectorXf h = testing::random_vector(4, 1);
  Workspace workspace;
  EXPECT_THROW(exact_log_prob(layer, h.data(), 4, -1, workspace), std::invalid_argument);
  EXPECT_THROW(exact_log_prob(layer, h.data(), 5, 0, workspace), std::invalid_argument);
}

}  // namespace
}  // namespace topksoftmax
