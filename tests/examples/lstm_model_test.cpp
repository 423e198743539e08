// SPDX-License-Identifier: Apache-2.0
#include "lstm_model.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/model_file.hpp"
#include "support/reference.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/io/safetensors.hpp"

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

class SmallLstm : public ::testing::Test {
 protected:
  std::string error_of(const testing::ModelFile& file) const {
    return testing::error_of([&] { const LstmModel model(file.write(folder_)); });
  }

  static constexpr std::size_t kVocab = 7;
  static constexpr std::size_t kDim = 4;
  testing::TemporaryFolder folder_;
  testing::ModelFile small_ = testing::ModelFile::language_model(kVocab, kDim);
};

TEST_F(SmallLstm, TensorsOfAnotherShapeAreRefusedByName) {
  testing::expect_shapes_are_checked(small_, [this](const auto& file) { return error_of(file); });
}

TEST_F(SmallLstm, AnEmbeddingOfItsOwnMayBeWiderButHasARowForEachToken) {
  testing::ModelFile wide = small_;
  wide.add("embedding.weight", {kVocab, kDim + 3});
  EXPECT_NE(error_of(wide).find("\"lstm.weight_ih_l0\": shape is [16, 4], expected [16, 7]"),
            std::string::npos);
  wide.add("lstm.weight_ih_l0", {4 * kDim, kDim + 3});
  const LstmModel model(wide.write(folder_));
  LstmModel::State state = model.start(1);
  EXPECT_EQ(model.read(std::array<TokenId, 1>{6}, state).cols(), static_cast<Eigen::Index>(kDim));
  testing::ModelFile few = small_;
  few.add("embedding.weight", {kVocab - 1, kDim});
  EXPECT_NE(error_of(few).find("\"embedding.weight\": shape is [6, 4], expected [7, *]"), std::string::npos);
}

TEST_F(SmallLstm, WeightsThatAreNotFiniteAreRefusedByName) {
  for (const char* const name : {"lstm.weight_hh_l1", "lstm.bias_ih_l0"}) {
    testing::ModelFile wrong = small_;
    wrong.tensors[name].values[3] = std::numeric_limits<float>::quiet_NaN();
    const std::string error = error_of(wrong);
    EXPECT_NE(error.find('"' + std::string(name) + "\": value 3 is NaN; it must be finite"),
              std::string::npos)
        << error;
  }
}

TEST_F(SmallLstm, AThirdLayerIsRefused) {
  small_.add_lstm("lstm", "l2", kDim, kDim);
  EXPECT_NE(error_of(small_).find("\"lstm.weight_ih_l2\": is of a third layer; the model must have two"),
            std::string::npos);
}

TEST_F(SmallLstm, ATiedEmbeddingInIntegersHasTheirScales) {
  std::vector<std::int8_t> integers;
  for (float& weight : small_.tensors["weight"].values) {
    integers.push_back(static_cast<std::int8_t>(weight * 200.0F));
    weight = static_cast<float>(integers.back()) * 0.25F;
  }
  const LstmModel model(small_.write(folder_));
  testing::ModelFile scaled = small_;
  scaled.tensors.erase("weight");
  const std::vector<float> scales(kVocab, 0.25F);
  const LstmModel in_integers(scaled.write(folder_, {tensor_view("weight", {kVocab, kDim}, integers),
                                                     tensor_view("weight.scale", {kVocab}, scales)}));
  EXPECT_EQ(in_integers.layer().weights(), model.layer().weights());
  LstmModel::State state = model.start(1);
  LstmModel::State same = model.start(1);
  const std::array<TokenId, 1> token = {5};
  EXPECT_EQ(in_integers.read(token, same), model.read(token, state));
}

}  // namespace
}  // namespace topksoftmax
