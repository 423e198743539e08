// SPDX-License-Identifier: Apache-2.0
//
// What every backend's index must do: answer as before, and be refused where it is damaged, stale or newer.
#include "topksoftmax/io/index_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <string>

#include "conformance/backends.hpp"
#include "support/executors.hpp"
#include "support/layers.hpp"
#include "support/same_answers.hpp"
#include "support/saved_index.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/parallel/thread_pool.hpp"

namespace topksoftmax {
namespace {

using testing::all_backends;
using ::testing::AllOf;
using testing::Backend;
using testing::clustered_contexts;
using testing::error_of;
using testing::expect_same_answers;
using ::testing::HasSubstr;
using testing::kDim;
using testing::kVocab;
using testing::loader;
using testing::memory_folder;
using testing::Parts;
using testing::random_layer;
using testing::random_matrix;
using testing::saved;
using testing::TemporaryFolder;
using testing::world;

std::string refusal(const std::string& bytes, const SoftmaxLayer& layer = world().layer) {
  return testing::refusal(bytes, layer, loader());
}

std::unique_ptr<TopKSoftmax> load(const std::filesystem::path& path, const SoftmaxLayer& layer) {
  return load_index(path, layer, loader());
}

/// Whether a tensor may be of another length: the description says so, or does not describe it.
bool may_be_shorter(const BackendDescription& backend, const std::string& tensor) {
  const auto described = std::find_if(backend.tensors.begin(), backend.tensors.end(),
                                      [&](const TensorDescription& one) { return one.name == tensor; });
  return described == backend.tensors.end() || described->shape.starts_with("[*");
}

class IndexFile : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (!GetParam().description.traits.has_index) GTEST_SKIP() << "it has no index";
  }

  /// The backend over world(), built once for the suite.
  const TopKSoftmax& head() const {
    static std::map<std::string, std::unique_ptr<TopKSoftmax>> built;
    auto& backend = built[GetParam().name];
    if (!backend) backend = GetParam().make(world().layer, world().train);
    return *backend;
  }
};

TEST_P(IndexFile, AnswersAsBeforeBitForBit) {
  const TemporaryFolder folder(memory_folder());
  const auto path = folder.path() / "f";
  save_index(head(), path);
  verify_index(path);
  const auto loaded = load(path, world().layer);
  EXPECT_EQ(loaded->name(), head().name());
  EXPECT_EQ(loaded->index_bytes(), head().index_bytes());
  ASSERT_EQ(loaded->log_z_error().has_value(), head().log_z_error().has_value());
  if (loaded->log_z_error()) {
    EXPECT_EQ(loaded->log_z_error()->median, head().log_z_error()->median);
    EXPECT_EQ(loaded->log_z_error()->p99, head().log_z_error()->p99);
  }
  EXPECT_EQ(loaded->layer().rows().data, world().layer.rows().data);
  expect_same_answers(head(), *loaded, world().test);

  // Also when the file is gone, and what was loaded can be saved again.
  std::filesystem::remove(path);
  expect_same_answers(head(), *loaded, world().test.topRows(2));
  EXPECT_EQ(saved(*loaded), saved(head()));
}

TEST_P(IndexFile, LayersOfAllShapesAndTypes) {
  for (const auto& [vocab, dim] : {std::pair<Eigen::Index, Eigen::Index>{1, 1}, {3, 2}, {17, 5}, {200, 65}}) {
    const RowMajorMatrix W = random_matrix(vocab, dim, 3);
    const SoftmaxLayer layer = SoftmaxLayer::own(W, Eigen::VectorXf());
    const auto head = GetParam().make(layer, clustered_contexts(50, dim, 3, 2));
    const TemporaryFolder folder(memory_folder());
    save_index(*head, folder.path() / "f");
    // A copy of the layer with other distances between its rows is the same layer.
    RowMajorMatrix wide = RowMajorMatrix::Constant(vocab, dim + 3, 7.0F);
    wide.leftCols(dim) = W;
    const SoftmaxLayer strided = SoftmaxLayer::borrow(wide.leftCols(dim));
    expect_same_answers(*head, *load(folder.path() / "f", strided), random_matrix(5, dim, 4));
  }
  Eigen::Matrix<Eigen::half, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> half =
      random_matrix(100, 20, 3).cast<Eigen::half>();
  kernels::Rows rows;
  rows.data = half.data();
  rows.count = 100;
  rows.dim = rows.stride = 20;
  rows.type = WeightType::float16;
  const SoftmaxLayer layer = SoftmaxLayer::borrow(rows, 0);
  const auto head = GetParam().make(layer, clustered_contexts(50, 20, 3, 2));
  const TemporaryFolder folder(memory_folder());
  save_index(*head, folder.path() / "f");
  expect_same_answers(*head, *load(folder.path() / "f", layer), random_matrix(5, 20, 4));
}

TEST_P(IndexFile, IsTheSameWhateverThreadsBuildIt) {
  const SoftmaxLayer layer = random_layer(2500, kDim, 6);
  const RowMajorMatrix contexts = clustered_contexts(900, kDim, 12, 7);
  const auto built_on = [&](const Executor& executor) {
    const BuildMaterial material = {.layer = layer, .contexts = Contexts::of(contexts), .executor = executor};
    return saved(*GetParam().description.build(material, GetParam().settings));
  };
  const std::string alone = built_on(SerialExecutor());
  EXPECT_TRUE(built_on(ThreadPool(3)) == alone);
  EXPECT_TRUE(built_on(testing::ReversedExecutor(2)) == alone);
}

TEST_P(IndexFile, IsRefusedForAnotherLayer) {
  const std::string file = saved(head());
  RowMajorMatrix W = world().layer.weights();
  const Eigen::VectorXf b = world().layer.biases();
  EXPECT_EQ(refusal(file, SoftmaxLayer::own(W, b)), "");
  const auto stale = AllOf(HasSubstr("was built for another layer: its layer_sample is"),
                           HasSubstr("build the index again"));
  EXPECT_THAT(refusal(file, SoftmaxLayer::own(W, b).with({.soft_cap = 30.0F})), stale);
  // Signs of weights far apart, values swapped, one bit of a bias.
  RowMajorMatrix other = W;
  other(0, 0) = -other(0, 0);
  other(400, 8) = -other(400, 8);
  EXPECT_THAT(refusal(file, SoftmaxLayer::own(other, b)), stale);
  other = W;
  std::swap(other(3, 1), other(3, 17));
  EXPECT_THAT(refusal(file, SoftmaxLayer::own(other, b)), stale);
  other = W;
  other.row(5).swap(other.row(690));
  EXPECT_THAT(refusal(file, SoftmaxLayer::own(other, b)), stale);
  Eigen::VectorXf biases = b;
  biases[699] = std::nextafter(biases[699], 10.0F);
  EXPECT_THAT(refusal(file, SoftmaxLayer::own(W, biases)), stale);
  EXPECT_THAT(refusal(file, SoftmaxLayer::own(W, Eigen::VectorXf())), stale);
  EXPECT_THAT(refusal(file, random_layer(kVocab + 1, kDim, 1)),
              HasSubstr(R"(its vocab is "700", that of this layer "701")"));
  EXPECT_THAT(refusal(file, random_layer(kVocab, kDim + 1, 1)), HasSubstr("its dim is"));
}

TEST_P(IndexFile, IsRefusedWhenNewerOrOfAnotherKind) {
  Parts parts(saved(head()));
  const std::string kind = parts.metadata.at("kind");
  parts.metadata["format_version"] = "2";
  std::string newer = parts.file();
  EXPECT_THAT(refusal(newer), AllOf(HasSubstr("is of format version 2, newer than this library's 1"),
                                    HasSubstr("build the index again")));
  const auto dtype_at = newer.rfind("\"U8\"");
  if (dtype_at != std::string::npos) {  // of a type that this library does not know
    EXPECT_THAT(refusal(newer.replace(dtype_at, 4, "\"F3\"")), HasSubstr("is of format version 2, newer"));
  }
  parts.metadata["format_version"] = "one";
  EXPECT_THAT(refusal(parts.file()), HasSubstr("is not an index file"));
  parts.metadata["format_version"] = "1";
  parts.metadata["kind"] = "faiss";
  EXPECT_THAT(refusal(parts.file()),
              HasSubstr(R"(holds an index of kind "faiss", which this library does not know; it knows )"));
  parts.metadata.erase("kind");
  EXPECT_THAT(refusal(parts.file()), HasSubstr("its metadata has no kind; indexes are what"));
}

TEST_P(IndexFile, WithoutALearnedMassOutsideItAnswersByItsCandidates) {
  if (!head().log_z_error()) GTEST_SKIP() << "it learns none";
  Parts parts(saved(head()));
  std::erase_if(parts.tensors, [](const auto& tensor) { return tensor.first.starts_with("outside."); });
  ASSERT_EQ(parts.metadata.erase("options.outside_sample"), 1U);
  const TemporaryFolder folder(memory_folder());
  const auto old = load(folder.write("old", parts.file()), world().layer);
  EXPECT_FALSE(old->log_z_error());
  EXPECT_LT(old->index_bytes(), head().index_bytes());
  for (Eigen::Index i = 0; i < world().test.rows(); ++i) {
    const TopK before = old->query(world().test.row(i), {.k = 3});
    const TopK learned = head().query(world().test.row(i), {.k = 3});
    EXPECT_EQ(before.ids, learned.ids);
    EXPECT_EQ(before.logits, learned.logits);
    EXPECT_NE(before.normalizer, Normalizer::learned);
    if (learned.normalizer == Normalizer::learned) {
      EXPECT_LE(before.log_z, learned.log_z);
    }
  }
}

TEST_P(IndexFile, IsRefusedWithoutSomeTensorOrOption) {
  const std::string whole = saved(head());
  for (const auto& [name, view] : Parts(whole).tensors) {
    Parts parts(whole);
    parts.tensors.erase(name);
    EXPECT_THAT(refusal(parts.file()),
                AllOf(HasSubstr(name), HasSubstr("is damaged; build the index again")));
    parts = Parts(whole);
    parts.tensors.at(name).shape.push_back(1);
    EXPECT_THAT(refusal(parts.file()), AllOf(HasSubstr(name), HasSubstr("expected")));
    if (view.shape[0] == 0) continue;
    parts = Parts(whole);
    parts.shorten(name);
    const std::string message = refusal(parts.file());
    if (message.empty() && may_be_shorter(GetParam().description, name)) continue;
    EXPECT_THAT(message, HasSubstr("is damaged; build the index again")) << name;
  }
  for (const auto& [key, value] : Parts(whole).metadata) {
    if (key.find("options.") == std::string::npos) continue;
    Parts parts(whole);
    parts.metadata.erase(key);
    EXPECT_THAT(refusal(parts.file()), HasSubstr("its metadata has no " + key)) << key;
    if (value == head().name()) continue;
    parts.metadata[key] = "many";
    EXPECT_THAT(refusal(parts.file()), AllOf(HasSubstr(key), HasSubstr("expected"), HasSubstr("damaged")));
    parts.metadata[key] = "-1";
    if (value.find('.') == std::string::npos) {
      const std::string message = refusal(parts.file());
      EXPECT_TRUE(message.empty() || message.find("damaged") != std::string::npos) << message;
    }
  }
}

TEST_P(IndexFile, IsRefusedWhenTruncated) {
  const std::string whole = saved(head());
  std::mt19937 random(1);
  for (std::size_t i = 0; i < 60; ++i) {
    const std::size_t length = i < 10 ? i : i < 20 ? whole.size() - 1 - (i - 10) : random() % whole.size();
    EXPECT_THAT(refusal(whole.substr(0, length)), HasSubstr("build the index again")) << length;
  }
}

TEST_P(IndexFile, DamageIsRefusedOrDoesNoHarm) {
  const std::string whole = saved(head());
  const TemporaryFolder folder(memory_folder());
  std::mt19937 random(7);
  std::uint64_t length = 0;
  std::memcpy(&length, whole.data(), sizeof(length));
  for (int round = 0; round < 150; ++round) {
    std::string damaged = whole;
    // Half of it in the header, which is a small part of the file.
    const std::size_t within = round % 2 == 0 ? length + 8 : whole.size();
    for (std::uint32_t i = 0; i <= random() % 3; ++i) {
      damaged[random() % within] = static_cast<char>(random() % 256);
    }
    const auto path = folder.write("damaged", damaged);
    try {
      const auto loaded = load(path, world().layer);
      const Eigen::VectorXf h = world().test.row(round % world().test.rows());
      const TopK answer = loaded->query(h, {.k = 5});
      EXPECT_EQ(answer.size(), 5U);
      loaded->query(h, {.k = 50, .effort = 10});
      loaded->query_batch(world().test.topRows(5), {.k = 2});
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("damaged"));
    }
  }
}

TEST_P(IndexFile, VerifyingFindsEveryChange) {
  const std::string whole = saved(head());
  const TemporaryFolder folder(memory_folder());
  const auto verified = [&](const std::string& bytes) {
    return error_of([&] { verify_index(folder.write("f", bytes)); });
  };
  EXPECT_EQ(verified(whole), "");
  EXPECT_EQ(verified(Parts(whole).file()), "") << "the order of the tensors means nothing";
  std::mt19937 random(3);
  for (const auto& [name, view] : Parts(whole).tensors) {
    Parts parts(whole);
    std::string& bytes = parts.bytes.at(name);
    if (bytes.empty()) continue;
    bytes[random() % bytes.size()] ^= static_cast<char>(1U << random() % 8);
    EXPECT_THAT(verified(parts.file()), AllOf(HasSubstr("its checksum is"), HasSubstr("damaged")));
  }
  for (const auto& [key, value] : Parts(whole).metadata) {
    if (key == "kind" || key == "format_version") continue;
    Parts parts(whole);
    parts.metadata[key] += "0";
    EXPECT_THAT(verified(parts.file()), HasSubstr("its checksum is"));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, IndexFile, ::testing::ValuesIn(all_backends()),
                         [](const auto& backend) { return testing::suite_name(backend.param); });

}  // namespace
}  // namespace topksoftmax
