// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/gguf_layer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/gguf_writer.hpp"
#include "support/layers.hpp"
#include "support/temporary_folder.hpp"
#include "support/weight_blocks.hpp"
#include "topksoftmax/fused.hpp"

namespace topksoftmax {
namespace {

using testing::error_of;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::random_blocks;
using testing::random_vector;

constexpr std::uint64_t kVocab = 40;
constexpr std::uint64_t kDim = 512;

template <class T>
std::string bytes_of(const T& values) {
  return {reinterpret_cast<const char*>(values.data()),
          static_cast<std::size_t>(values.size()) * sizeof(*values.data())};
}

class GgufLayerTest : public ::testing::Test {
 protected:
  std::filesystem::path write(const GgufWriter& writer) const {
    return folder_.write("model.gguf", writer.bytes());
  }

  testing::TemporaryFolder folder_;
};

TEST_F(GgufLayerTest, HasTheWeightsOfEveryTypeWhereTheyLie) {
  struct Stored {
    std::uint32_t ggml;
    WeightType type;
  };
  for (const Stored stored :
       {Stored{8, WeightType::q8_0}, Stored{14, WeightType::q6_k}, Stored{12, WeightType::q4_k}}) {
    const WeightBlock shape = weight_block(stored.type);
    const std::vector<std::uint8_t> blocks = random_blocks(stored.type, kVocab * kDim / shape.weights, 3);
    GgufWriter writer;
    writer.value("general.architecture", "gemma2").value("gemma2.final_logit_softcapping", 25.0F);
    writer.tensor("token_embd.weight", {kDim, kVocab}, stored.ggml, bytes_of(blocks));
    const GgufFile file = GgufFile::open(write(writer));
    const SoftmaxLayer layer = gguf_layer(file);
    EXPECT_EQ(layer.rows().data, file.tensor("token_embd.weight").bytes.data());
    EXPECT_EQ(layer.transform(), (LogitTransform{.soft_cap = 25.0F}));
    kernels::Rows rows;
    rows.data = blocks.data();
    rows.type = stored.type;
    rows.count = kVocab;
    rows.dim = rows.stride = kDim;
    const SoftmaxLayer expected = SoftmaxLayer::borrow(rows, 0).with({.soft_cap = 25.0F});
    const Eigen::VectorXf h = random_vector(kDim, 4);
    const TopK answer = Fused::make(layer)->query(h, {.k = 7});
    const TopK truth = Fused::make(expected)->query(h, {.k = 7});
    EXPECT_EQ(answer.ids, truth.ids);
    EXPECT_EQ(answer.logits, truth.logits);
  }
}

TEST_F(GgufLayerTest, HasTheBiasAndOutlivesTheFile) {
  const RowMajorMatrix W = testing::random_matrix(6, 4, 1);
  const Eigen::VectorXf b = random_vector(6, 2);
  const Eigen::Matrix<Eigen::half, Eigen::Dynamic, 1> halves = b.cast<Eigen::half>();
  const Eigen::Matrix<Eigen::bfloat16, Eigen::Dynamic, 1> brain = b.cast<Eigen::bfloat16>();
  for (const std::uint32_t type : {0U, 1U, 30U}) {
    GgufWriter writer;
    writer.tensor("output.weight", {4, 6}, 0, bytes_of(W));
    writer.tensor("output.bias", {6}, type,
                  type == 0   ? bytes_of(b)
                  : type == 1 ? bytes_of(halves)
                              : bytes_of(brain));
    const SoftmaxLayer layer = open_gguf_layer(write(writer));
    EXPECT_EQ(layer.weights(), W);
    const Eigen::VectorXf expected = type == 0   ? b
                                     : type == 1 ? Eigen::VectorXf(halves.cast<float>())
                                                 : Eigen::VectorXf(brain.cast<float>());
    EXPECT_EQ(layer.biases(), expected);
  }
}

TEST_F(GgufLayerTest, NamesTheTensorOfWeightsThatNoLayerHas) {
  RowMajorMatrix W = testing::random_matrix(6, 4, 1);
  W(3, 2) = std::numeric_limits<float>::quiet_NaN();
  GgufWriter writer;
  writer.tensor("output.weight", {4, 6}, 0, bytes_of(W));
  EXPECT_THAT(error_of([&] { open_gguf_layer(write(writer)); }),
              HasSubstr("model.gguf: tensor \"output.weight\": softmax layer: W at row 3, column 2 is NaN"));
}

// llama.cpp's converter adds the rows' numbers to what checkpoints have; others copy it.
TEST_F(GgufLayerTest, TellsWhichTokensTheRowsAre) {
  const auto token_ids = [this](const std::string& name, std::uint32_t type, const std::string& values) {
    GgufWriter writer;
    writer.alignment = 1;
    writer.value("general.alignment", std::uint32_t{1});
    writer.tensor("output.weight", {4, 3}, 0, bytes_of(testing::random_matrix(3, 4, 1)));
    writer.tensor(name, {3}, type, values);
    const GgufFile file = GgufFile::open(write(writer));
    EXPECT_EQ(gguf_layer(file).vocab(), 3U);
    return gguf_token_ids(file, find_gguf_head(file));
  };
  const std::vector<std::int64_t> wide = {0, 4, 7};
  const std::vector<std::int32_t> narrow = {0, 4, 7};
  const std::vector<TokenId> as_they_are = {0, 4, 7};
  const std::vector<TokenId> from_their_rows = {0, 5, 9};
  EXPECT_EQ(token_ids("d2t", 27, bytes_of(wide)), as_they_are);
  EXPECT_EQ(token_ids("d2t", 26, bytes_of(narrow)), as_they_are);
  EXPECT_EQ(token_ids("d2t.weight", 27, bytes_of(wide)), from_their_rows);
  EXPECT_EQ(token_ids("d2t.weight", 26, bytes_of(narrow)), from_their_rows);
  EXPECT_EQ(token_ids("other", 27, bytes_of(wide)), std::vector<TokenId>());
  for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{2147483647}, std::int64_t{1} << 31,
                                 std::numeric_limits<std::int64_t>::min()}) {
    const std::vector<std::int64_t> values = {0, bad, 7};
    EXPECT_THAT(error_of([&] { token_ids("d2t", 27, bytes_of(values)); }),
                HasSubstr("model.gguf: tensor \"d2t\": has " + std::to_string(bad) +
                          " for row 1; it must be an id, at least 0 and at most 2147483646"));
  }
  const std::vector<std::int64_t> below = {0, -2, 7};
  EXPECT_THAT(error_of([&] { token_ids("d2t.weight", 27, bytes_of(below)); }),
              HasSubstr("model.gguf: tensor \"d2t.weight\": has -2 for row 1; with the row's number"));
  EXPECT_THAT(error_of([&] { token_ids("d2t", 0, bytes_of(narrow)); }),
              HasSubstr("tensor \"d2t\": is stored as F32, expected I64 or I32"));
}

TEST_F(GgufLayerTest, TakesWeightsAtAnyByte) {
  const RowMajorMatrix W = testing::random_matrix(6, 4, 1);
  GgufWriter writer;
  writer.alignment = 1;
  writer.value("general.alignment", std::uint32_t{1});
  for (int shift = 0; shift < 4; ++shift) {
    const SoftmaxLayer layer =
        open_gguf_layer(write(GgufWriter(writer).tensor("output.weight", {4, 6}, 0, bytes_of(W))));
    EXPECT_EQ(layer.weights(), W);
    writer.value("a" + std::string(static_cast<std::size_t>(shift), 'a'), "b");
  }
}

TEST_F(GgufLayerTest, RefusesOtherTypesAndWhatIsNotFinite) {
  EXPECT_THAT(
      error_of([&] {
        open_gguf_layer(write(GgufWriter().tensor("output.weight", {32, 2}, 6, std::string(44, 'w'))));
      }),
      HasSubstr("model.gguf: tensor \"output.weight\": is stored as Q5_0, expected F32, F16, BF16, "
                "Q8_0, Q6_K or Q4_K"));
  EXPECT_THAT(error_of([&] {
                open_gguf_layer(write(GgufWriter()
                                          .tensor("output.weight", {32, 2}, 8, std::string(68, 'w'))
                                          .tensor("output.bias", {2}, 26, std::string(8, 'b'))));
              }),
              HasSubstr("tensor \"output.bias\": is stored as I32, expected F32, F16 or BF16"));
  EXPECT_THAT(
      error_of([&] {
        open_gguf_layer(write(GgufWriter().tensor("output.weight", {32, 2}, 8, std::string(68, '\xff'))));
      }),
      HasSubstr("W at row 0, column 0 is NaN; it must be finite"));
}

}  // namespace
}  // namespace topksoftmax
