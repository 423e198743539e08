// SPDX-License-Identifier: Apache-2.0
#include "lstm_model.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "support/reference.hpp"

namespace topksoftmax {
namespace {

using examples::LstmModel;

TEST(LstmModel, GivesTheLogProbabilitiesStoredInItsFile) {
  const LstmModel model(TOPKSOFTMAX_EXAMPLE_DATA);
  std::vector<std::int32_t> tokens(65);
  std::vector<float> expected(64);
  model.file().read("check.tokens", std::span<std::int32_t>(tokens));
  model.file().read("check.log_probs", std::span<float>(expected));
  LstmModel::State state = model.start(1);
  for (std::size_t i = 0; i < 64; ++i) {
    const Eigen::VectorXf h = model.read(std::span(tokens).subspan(i, 1), state).row(0);
    const testing::Reference reference(model.layer(), h);
    EXPECT_NEAR(reference.logits[static_cast<std::size_t>(tokens[i + 1])] - reference.log_z, expected[i],
                1e-3);
  }
}

TEST(LstmModel, StreamsDoNotDependOnEachOther) {
  const LstmModel model(TOPKSOFTMAX_EXAMPLE_DATA);
  LstmModel::State alone = model.start(1);
  LstmModel::State together = model.start(3);
  for (const TokenId token : {5, 17, 2, 900}) {
    const TokenId tokens[] = {1, token, 7};
    const RowMajorMatrix one = model.read(std::span(tokens).subspan(1, 1), alone);
    const RowMajorMatrix three = model.read(tokens, together);
    EXPECT_TRUE(one.row(0).isApprox(three.row(1), 1e-5F));
  }
}

TEST(LstmModel, KnowsItsWords) {
  const LstmModel model(TOPKSOFTMAX_EXAMPLE_DATA);
  EXPECT_EQ(model.word(0), "<unk>");
  EXPECT_EQ(model.word(model.token("the")), "the");
  EXPECT_THROW(model.token("no such word"), Error);
}

}  // namespace
}  // namespace topksoftmax
