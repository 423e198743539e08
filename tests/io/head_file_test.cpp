// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/head_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/layers.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/fused.hpp"

namespace topksoftmax {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::random_matrix;
using testing::random_vector;

template <class T>
std::vector<T> values(const RowMajorMatrix& m) {
  std::vector<T> out;
  for (Eigen::Index i = 0; i < m.size(); ++i) out.push_back(static_cast<T>(m.data()[i]));
  return out;
}

class HeadFileTest : public ::testing::Test {
 protected:
  template <class T>
  HeadFile written(const std::vector<T>& weights, std::vector<TensorView> more = {}) {
    std::vector<TensorView> tensors = {tensor_view("weight", {6, 4}, weights)};
    tensors.insert(tensors.end(), more.begin(), more.end());
    write_safetensors(folder_.path() / "small.safetensors", tensors);
    return HeadFile::open(folder_.path() / "small.safetensors");
  }

  testing::TemporaryFolder folder_;
  RowMajorMatrix W_ = random_matrix(6, 4, 1);
};

TEST_F(HeadFileTest, NamesTheTensorOfWeightsThatNoLayerHas) {
  W_(3, 2) = std::numeric_limits<float>::infinity();
  const HeadFile head = written(values<float>(W_));
  EXPECT_EQ(error_of([&] { head.layer(); }),
            (folder_.path() / "small.safetensors").string() +
                ": tensor \"weight\": softmax layer: W at row 3, column 2 is infinite; it must be finite");
}

TEST_F(HeadFileTest, ReadsEverything) {
  const std::vector<float> bias = values<float>(random_matrix(6, 1, 2));
  const std::vector<float> train = values<float>(random_matrix(5, 4, 3));
  const std::vector<Eigen::half> test = values<Eigen::half>(random_matrix(3, 4, 4));
  const std::vector<std::int32_t> counts = {6, 5, 4, 3, 2, 1};
  const HeadFile head = written(
      values<float>(W_), {tensor_view("bias", {6}, bias), tensor_view("contexts.train", {5, 4}, train),
                          tensor_view("contexts.test", {3, 4}, test), tensor_view("counts", {6}, counts)});
  EXPECT_EQ(head.name(), "small");
  EXPECT_EQ(head.vocab(), 6U);
  EXPECT_EQ(head.dim(), 4U);
  EXPECT_EQ(head.layer().weights(), W_);
  EXPECT_EQ(head.layer().biases()[5], bias[5]);
  EXPECT_EQ(head.train_contexts()(4, 3), train[19]);
  EXPECT_EQ(head.test_contexts()(2, 3), static_cast<float>(test[11]));
  EXPECT_EQ(head.counts(), (std::vector<std::int64_t>{6, 5, 4, 3, 2, 1}));
}

TEST_F(HeadFileTest, RefusesCountsBelowZero) {
  const std::vector<std::int32_t> counts = {6, 5, 4, -3, 2, 1};
  const HeadFile head = written(values<float>(W_), {tensor_view("counts", {6}, counts)});
  EXPECT_THAT(error_of([&] { head.counts(); }),
              HasSubstr("holds -3 for token 3; a token occurs at least 0 times"));
}

TEST_F(HeadFileTest, OptionalTensorsMayBeMissing) {
  const HeadFile head = written(values<float>(W_));
  EXPECT_FALSE(head.layer().has_bias());
  EXPECT_EQ(head.train_contexts().rows(), 0);
  EXPECT_EQ(head.test_count(), 0U);
  EXPECT_TRUE(head.counts().empty());
}

TEST_F(HeadFileTest, LayersAreUsedWhereTheyLie) {
  const HeadFile half = written(values<Eigen::half>(W_));
  const SoftmaxLayer layer = half.layer();
  EXPECT_EQ(layer.weight_type(), WeightType::float16);
  EXPECT_EQ(layer.weights(), W_.cast<Eigen::half>().cast<float>());

  const std::vector<float> scales = {0.1F, 0.2F, 0.3F, 0.4F, 0.5F, 0.6F};
  const std::vector<std::int8_t> q(24, 3);
  const HeadFile bytes = written(q, {tensor_view("weight.scale", {6}, scales)});
  EXPECT_EQ(bytes.layer().weight_type(), WeightType::int8);
  EXPECT_FLOAT_EQ(bytes.layer().weights()(5, 2), 1.8F);
  const Eigen::VectorXf h = random_vector(4, 9);
  const SoftmaxLayer in_float32 = SoftmaxLayer::own(bytes.layer().weights(), Eigen::VectorXf());
  EXPECT_EQ(Fused::make(bytes.layer())->query(h, {.k = 6}).ids,
            Fused::make(in_float32)->query(h, {.k = 6}).ids);
}

TEST_F(HeadFileTest, SomeRowsAreThoseOfTheWhole) {
  const std::vector<float> bias = values<float>(random_matrix(6, 1, 2));
  const std::vector<float> scales = {0.1F, 0.2F, 0.3F, 0.4F, 0.5F, 0.6F};
  const auto check = [](const HeadFile& head) {
    const SoftmaxLayer whole = head.layer();
    const SoftmaxLayer some = head.layer(2, 3);
    EXPECT_EQ(some.weight_type(), whole.weight_type());
    EXPECT_EQ(some.weights(), whole.weights().middleRows(2, 3));
    EXPECT_EQ(some.biases(), whole.biases().segment(2, 3));
    EXPECT_THAT(error_of([&] { head.layer(4, 3); }), HasSubstr("has 6 rows; rows 4 to 7 are asked for"));
    EXPECT_THAT(error_of([&] { head.layer(7, 0); }), HasSubstr("has 6 rows; rows 7 to 7 are asked for"));
    EXPECT_NE(error_of([&] { head.layer(6, 0); }), "");
  };
  check(written(values<float>(W_)));
  check(written(values<Eigen::bfloat16>(W_), {tensor_view("bias", {6}, bias)}));
  check(written(values<std::int8_t>(W_ * 50.0F),
                {tensor_view("bias", {6}, bias), tensor_view("weight.scale", {6}, scales)}));
}

TEST_F(HeadFileTest, StoredLayersMayBeginAtAnyByte) {
  const float weights[] = {1.0F, -2.0F, 3.0F};
  for (std::size_t blanks = 0; blanks < sizeof(float); ++blanks) {
    const std::string header =
        R"({"weight":{"dtype":"F32","shape":[3,1],"data_offsets":[0,12]}})" + std::string(blanks, ' ');
    std::string bytes(sizeof(std::uint64_t), '\0');
    bytes[0] = static_cast<char>(header.size());
    bytes += header;
    bytes.append(reinterpret_cast<const char*>(weights), sizeof(weights));
    const HeadFile head = HeadFile::open(folder_.write("hand-made.safetensors", bytes));
    EXPECT_EQ(head.layer().weights(), RowMajorMatrix(Eigen::Vector3f(1.0F, -2.0F, 3.0F)));
  }
}

TEST_F(HeadFileTest, ReadsAScaleAndASoftCap) {
  const auto with = [&](const TensorMetadata& metadata) {
    const std::vector<float> weights = values<float>(W_);
    const std::filesystem::path path = folder_.path() / "capped.safetensors";
    write_safetensors(path, std::vector{tensor_view("weight", {6, 4}, weights)}, metadata);
    return HeadFile::open(path);
  };
  const LogitTransform expected = {.scale = 0.0625F, .soft_cap = 30.0F};
  const HeadFile head = with({{"logit_scale", "0.0625"}, {"soft_cap", "30"}});
  EXPECT_EQ(head.transform(), expected);
  EXPECT_EQ(head.layer().transform(), expected);
  EXPECT_TRUE(with({{"name", "plain"}}).transform().is_identity());
  EXPECT_THAT(error_of([&] {
                with({{"soft_cap", "thirty"}});
              }),
              HasSubstr("capped.safetensors: metadata soft_cap is \"thirty\"; it must be a number"));
  EXPECT_THAT(error_of([&] {
                with({{"logit_scale", "1e40"}});
              }),
              HasSubstr("metadata logit_scale is \"1e40\"; it must be a number within float32's range"));
  EXPECT_THAT(error_of([&] {
                with({{"logit_scale", "-1"}});
              }),
              HasSubstr("the scale of the logits is -1; it must be between 1e-09 and 1e+09"));
}

TEST_F(HeadFileTest, OpensNothingWhereAFileIsNoHead) {
  const std::vector<float> weights = values<float>(W_);
  const std::vector<float> six(6, 1.0F);
  const auto opened = [this](const char* name, const std::vector<TensorView>& tensors) {
    write_safetensors(folder_.path() / name, tensors);
    return HeadFile::open_if_head(folder_.path() / name);
  };
  const auto head = opened("head", {tensor_view("weight", {6, 4}, weights)});
  ASSERT_TRUE(head);
  EXPECT_EQ(head->name(), "head");
  EXPECT_EQ(head->layer().weights(), W_);
  EXPECT_FALSE(opened("checkpoint", {tensor_view("lm_head.weight", {6, 4}, weights)}));
  EXPECT_FALSE(HeadFile::open_if_head(folder_.path() / "none.json"));
  EXPECT_THROW(opened("damaged", {tensor_view("weight", {6}, six)}), Error);
  EXPECT_THROW(HeadFile::open_if_head(folder_.path() / "none.safetensors"), Error);
}

TEST_F(HeadFileTest, RefusesWhatIsNoHead) {
  const std::vector<float> six(6, 1.0F);
  const std::vector<std::int8_t> q(24, 3);
  const std::vector<std::int32_t> integers(24, 3);
  EXPECT_THROW(written(values<float>(W_), {tensor_view("bias", {3, 2}, six)}), Error);
  EXPECT_THROW(written(values<float>(W_), {tensor_view("contexts.train", {2, 3}, six)}), Error);
  EXPECT_THROW(written(values<float>(W_), {tensor_view("weight.scale", {6}, six)}), Error);
  EXPECT_THROW(written(q), Error);
  EXPECT_THROW(written(integers), Error);
  EXPECT_THROW(HeadFile::open(folder_.path() / "none.safetensors"), Error);
}

}  // namespace
}  // namespace topksoftmax
