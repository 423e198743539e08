// SPDX-License-Identifier: Apache-2.0
//
// What the library writes, as Python sees it with NumPy and without the library.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "conformance/backends.hpp"
#include "support/layers.hpp"
#include "support/temporary_folder.hpp"
#include "support/weight_blocks.hpp"
#include "topksoftmax/fgd/build.hpp"
#include "topksoftmax/io/head_file.hpp"
#include "topksoftmax/registry/standard.hpp"
#include "topksoftmax/registry/tables.hpp"
#include "topksoftmax/topksoftmax.hpp"

namespace topksoftmax {
namespace {

using testing::all_backends;
using testing::Backend;
using testing::clustered_contexts;
using testing::memory_folder;
using testing::random_matrix;
using testing::random_vector;
using testing::TemporaryFolder;
using testing::values;

constexpr std::size_t kVocab = 700;
constexpr std::size_t kDim = 40;
constexpr std::size_t kTrain = 600;
constexpr std::size_t kTest = 20;
constexpr std::size_t kK = 5;

class NumpyTest : public ::testing::Test {
 protected:
  void SetUp() override {
#ifndef TOPKSOFTMAX_PYTHON
    GTEST_SKIP() << "there is no python3 that has NumPy";
#endif
  }

  /// A path in the folder of the test.
  std::string file(const std::string& name) const {
    return (folder_.path() / name).string();
  }

  /// Runs a script of this folder; what it printed, if it failed.
  static std::string complaint([[maybe_unused]] const std::string& script,
                               [[maybe_unused]] const std::vector<std::string>& arguments) {
#ifdef TOPKSOFTMAX_PYTHON
    std::string command = "'" TOPKSOFTMAX_PYTHON "' -B '" TOPKSOFTMAX_SCRIPTS "/" + script + "'";
    for (const std::string& argument : arguments) command += " '" + argument + "'";
    std::FILE* const pipe = popen((command + " 2>&1").c_str(), "r");
    if (pipe == nullptr) return "cannot run " + command;
    std::string printed;
    std::array<char, 4096> part{};
    for (std::size_t size = 0; (size = std::fread(part.data(), 1, part.size(), pipe)) > 0;) {
      printed.append(part.data(), size);
    }
    return pclose(pipe) == 0 ? "" : command + ":\n" + printed;
#else
    return "";
#endif
  }

  /// A head file with these weights, as values of type T, and what else there may be.
  template <class T>
  HeadFile write_head(const std::string& name, double steps, const std::vector<TensorView>& more = {}) const {
    std::vector<T> weights;
    for (const float w : values(W_)) weights.push_back(static_cast<T>(static_cast<double>(w) * steps));
    const std::span<const float> contexts = values(contexts_);
    std::vector<TensorView> tensors = {
        tensor_view("weight", {kVocab, kDim}, weights),
        tensor_view("contexts.train", {kTrain, kDim}, contexts.first(kTrain * kDim)),
        tensor_view("contexts.test", {kTest, kDim}, contexts.last(kTest * kDim))};
    tensors.insert(tensors.end(), more.begin(), more.end());
    write_safetensors(file(name), tensors, {{"name", name}});
    return HeadFile::open(file(name));
  }

  /// Writes what a backend answers to a head's test contexts.
  void write_answers(const TopKSoftmax& backend, const HeadFile& head) const {
    std::vector<TokenId> ids;
    std::vector<float> logits;
    std::vector<double> log_z;
    for (const TopK& answer : backend.query_batch(head.test_contexts(), {.k = kK})) {
      ids.insert(ids.end(), answer.ids.begin(), answer.ids.end());
      logits.insert(logits.end(), answer.logits.begin(), answer.logits.end());
      log_z.push_back(answer.normalizer == Normalizer::learned ? answer.log_z
                                                               : std::numeric_limits<double>::quiet_NaN());
    }
    const std::vector<TensorView> tensors = {tensor_view("ids", {kTest, kK}, ids),
                                             tensor_view("logits", {kTest, kK}, logits),
                                             tensor_view("log_z", {kTest}, log_z)};
    write_safetensors(file("answers"), tensors);
  }

  /// The head of W in float32, with biases.
  HeadFile float_head() const {
    return write_head<float>("float32", 1.0, {tensor_view("bias", {kVocab}, bias_)});
  }

  TemporaryFolder folder_{memory_folder()};
  RowMajorMatrix W_ = random_matrix(kVocab, kDim, 1, 0.3F);
  Eigen::VectorXf b_ = random_vector(kVocab, 2);
  std::vector<float> bias_{b_.begin(), b_.end()};
  RowMajorMatrix contexts_ = clustered_contexts(kTrain + kTest, kDim, 12, 3);
};

TEST_F(NumpyTest, AnswersFromHeadFilesOfEveryType) {
  const std::vector<float> scales(kVocab, 0.01F);
  const std::vector<std::int32_t> counts(kVocab, 7);
  for (const HeadFile& head :
       {float_head(), write_head<Eigen::half>("float16", 1.0, {tensor_view("counts", {kVocab}, counts)}),
        write_head<Eigen::bfloat16>("bfloat16", 1.0, {tensor_view("bias", {kVocab}, bias_)}),
        write_head<std::int8_t>("int8", 60.0, {tensor_view("weight.scale", {kVocab}, scales)})}) {
    write_answers(*Exact::make(head.layer()), head);
    EXPECT_EQ(complaint("numpy_answers.py", {file(head.name()), file("answers")}), "");
  }
}

TEST_F(NumpyTest, AnswersFromIndexFiles) {
  for (const HeadFile& head : {float_head(), write_head<Eigen::half>("float16", 1.0)}) {
    const SoftmaxLayer layer = head.layer();
    const RowMajorMatrix train = head.train_contexts();
    std::vector<std::unique_ptr<const TopKSoftmax>> backends;
    backends.push_back(L2S::train(layer, train, {.clusters = 8, .budget = 60, .rounds = 2}));
    backends.push_back(SvdSoftmax::build(layer));
    backends.push_back(RowClusters::build(layer, {.clusters = 12, .visited = 4}));
    backends.push_back(RowClusters::build(layer, train, {.clusters = 12, .visited = 4}));
    backends.push_back(AdaptiveSoftmax::build(layer, train));
    backends.push_back(Shortlist::build(layer));
    backends.push_back(Shortlist::build(layer, train));
    backends.push_back(Quantized::build(layer));
    backends.push_back(Certified::build(layer, train, {.prefix = 8}));  // has tails
    backends.push_back(Certified::build(layer, train, {.prefix = 8, .boxes = BoundBoxes::always}));
    backends.push_back(Certified::build(layer, train, {.prefix = 8, .int4_width = 32}));
    backends.push_back(Certified::build(layer, train, {.prefix = 4, .int4_width = 32, .width = 38}));
    backends.push_back(Certified::build(
        layer, train, {.prefix = 8, .int4_width = 32, .boxes = BoundBoxes::always, .box_width = 4}));
    for (const auto& backend : backends) {
      save_index(*backend, file("index"));
      write_answers(*backend, head);
      EXPECT_EQ(complaint("numpy_answers.py", {file(head.name()), file("answers"), file("index")}), "");
    }
  }
}

TEST_F(NumpyTest, FindsTheTensorsThatAreDocumented) {
  const HeadFile head = float_head();
  const SoftmaxLayer layer = head.layer();
  const RowMajorMatrix train = head.train_contexts();
  const auto table = folder_.write("table.md", index_tensor_table(Registry::standard()));
  std::vector<std::string> arguments = {table.string()};
  const auto save = [&](const TopKSoftmax& backend, const std::string& name) {
    save_index(backend, file(name));
    arguments.push_back(file(name));
  };
  for (const Backend& backend : all_backends()) save(*backend.make(layer, train), backend.name);
  save(*Fgd::build(layer), "upper layers");
  const L2SOptions with_codes = {.clusters = 1, .budget = 250, .label_depth = 64};
  save(*L2S::train(layer, train, with_codes), "a long set");
  save(*Certify::wrap(L2S::train(layer, train, with_codes), train, {.prefix = 8}), "a long set, certified");
  const CertifiedOptions with_tails = {.prefix = 8};
  save(*Certified::build(layer, train, with_tails), "tails");
  const CertifiedOptions with_int4 = {.prefix = 8, .int4_width = 32};
  save(*Certified::build(layer, train, with_int4), "int4");
  save(*Certify::wrap(Shortlist::build(layer), train, with_int4), "int4 and shortlist");
  const CertifiedOptions dithered = {.prefix = 4, .int2_width = 32, .failure_probability = 1e-6};
  save(*Certified::build(layer, train, dithered), "dithered");
  save(*Certify::wrap(Shortlist::build(layer), train, dithered), "dithered and shortlist");
  const CertifiedOptions with_boxes = {.prefix = 8, .boxes = BoundBoxes::always};
  save(*Certify::wrap(L2S::train_kmeans(layer, train), train, with_boxes), "tails, boxes and l2s");
  // Enough contexts to learn the estimate of log Z from.
  const RowMajorMatrix many = clustered_contexts(2400, static_cast<Eigen::Index>(layer.dim()), 6, 9);
  save(*Certified::build(layer, many, with_tails), "estimate");
  save(*Certify::wrap(Shortlist::build(layer), many, with_tails), "estimate and shortlist");
  EXPECT_EQ(complaint("numpy_table.py", arguments), "");
}

TEST_F(NumpyTest, UnpacksBlocksOfWeightsToTheSameBits) {
  constexpr std::size_t kBlocks = 500;
  std::vector<std::vector<std::uint8_t>> blocks;
  std::vector<RowMajorMatrix> weights;
  std::vector<TensorView> tensors;
  for (const WeightType type : {WeightType::q8_0, WeightType::q6_k, WeightType::q4_k}) {
    const WeightBlock shape = weight_block(type);
    kernels::Rows rows;
    blocks.push_back(testing::random_blocks(type, kBlocks, 8, 0, 30));
    rows.data = blocks.back().data();
    rows.count = kBlocks;
    rows.dim = rows.stride = shape.weights;
    rows.type = type;
    weights.push_back(SoftmaxLayer::borrow(rows, 0).weights());
    const std::string name(weight_type_name(type));
    tensors.push_back(tensor_view(name + ".blocks", {kBlocks, shape.bytes}, blocks.back()));
    tensors.push_back(tensor_view(name + ".weights", {kBlocks, shape.weights}, values(weights.back())));
  }
  write_safetensors(file("blocks"), tensors);
  EXPECT_EQ(complaint("numpy_blocks.py", {file("blocks")}), "");
}

TEST_F(NumpyTest, NoticesAWrongAnswer) {
  const HeadFile head = float_head();
  write_answers(*Shortlist::build(head.layer(), {.top_frequent = 20}), head);
  const std::string said = complaint("numpy_answers.py", {file(head.name()), file("answers")});
  EXPECT_NE(said.find("AssertionError"), std::string::npos) << said;
}

}  // namespace
}  // namespace topksoftmax
