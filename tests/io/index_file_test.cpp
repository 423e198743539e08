// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/index_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <map>
#include <random>
#include <span>
#include <sstream>
#include <thread>

#include "conformance/backends.hpp"
#include "io/saved_index.hpp"
#include "support/layers.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/topksoftmax.hpp"

namespace topksoftmax {
namespace {

using testing::all_backends;
using ::testing::AllOf;
using testing::Backend;
using testing::clustered_contexts;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::kDim;
using testing::kVocab;
using testing::memory_folder;
using testing::Parts;
using testing::random_layer;
using testing::random_matrix;
using testing::random_vector;
using testing::read_bytes;
using testing::refusal;
using testing::saved;
using testing::TemporaryFolder;
using testing::world;

void expect_same(const TopK& a, const TopK& b) {
  const auto equal = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.logits, b.logits);
  EXPECT_EQ(a.normalizer, b.normalizer);
  EXPECT_EQ(a.certified, b.certified);
  EXPECT_TRUE(equal(a.log_z, b.log_z)) << a.log_z << " " << b.log_z;
  EXPECT_TRUE(equal(a.log_z_low, b.log_z_low) && equal(a.log_z_high, b.log_z_high));
  EXPECT_EQ(a.work.candidates, b.work.candidates);
  EXPECT_EQ(a.work.bytes_read, b.work.bytes_read);
}

/// Both answer contexts of all kinds alike, bit for bit.
void expect_same_answers(const TopKSoftmax& a, const TopKSoftmax& b, const RowMajorMatrix& contexts) {
  TokenMask mask(a.layer().vocab());
  for (std::size_t id = 0; id < a.layer().vocab(); id += 3) mask.allow(static_cast<TokenId>(id));
  const std::array biases = {TokenBias{1, 2.0F}, TokenBias{6, -1.0F}};
  const std::span bias = std::span(biases).first(a.layer().vocab() > 6 ? 2 : 0);
  for (Eigen::Index i = 0; i < contexts.rows(); ++i) {
    const Eigen::VectorXf h = contexts.row(i);
    for (const std::size_t k : {1U, 5U, 50U}) {
      expect_same(a.query(h, {.k = k}), b.query(h, {.k = k}));
      expect_same(a.query(h, {.k = k, .allowed = mask, .logit_bias = bias}),
                  b.query(h, {.k = k, .allowed = mask, .logit_bias = bias}));
    }
    expect_same(a.query(h, {.k = 5, .effort = 3}), b.query(h, {.k = 5, .effort = 3}));
  }
  const std::vector<TopK> of_a = a.query_batch(contexts, {.k = 5});
  const std::vector<TopK> of_b = b.query_batch(contexts, {.k = 5});
  for (std::size_t i = 0; i < of_a.size(); ++i) expect_same(of_a[i], of_b[i]);
}

class IndexFile : public ::testing::TestWithParam<Backend> {
 protected:
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
  const auto loaded = load_index(path, world().layer);
  EXPECT_EQ(loaded->name(), head().name());
  EXPECT_EQ(loaded->index_bytes(), head().index_bytes());
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
    const SoftmaxLayer strided = SoftmaxLayer::borrow(wide.leftCols(dim), Eigen::VectorXf());
    expect_same_answers(*head, *load_index(folder.path() / "f", strided), random_matrix(5, dim, 4));
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
  expect_same_answers(*head, *load_index(folder.path() / "f", layer), random_matrix(5, 20, 4));
}

TEST_P(IndexFile, IsRefusedForAnotherLayer) {
  const std::string file = saved(head());
  RowMajorMatrix W = world().layer.weights();
  const Eigen::VectorXf b = world().layer.biases();
  EXPECT_EQ(refusal(file, SoftmaxLayer::own(W, b)), "");
  const auto stale =
      AllOf(HasSubstr("was built for another layer: its layer_hash is"), HasSubstr("build the index again"));
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
  EXPECT_THAT(refusal(parts.file()), HasSubstr("is no index file"));
  parts.metadata["format_version"] = "1";
  parts.metadata["kind"] = "faiss";
  EXPECT_THAT(
      refusal(parts.file()),
      HasSubstr(R"(holds an index of kind "faiss", which this library does not know; it knows exact)"));
  parts.metadata.erase("kind");
  EXPECT_THAT(refusal(parts.file()), HasSubstr("its metadata has no kind; indexes are what"));
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
    const bool any_length = name.ends_with("history") || name.ends_with("list") || name == "entries";
    if (view.shape[0] == 0 || any_length) continue;
    parts = Parts(whole);
    parts.shorten(name);
    EXPECT_THAT(refusal(parts.file()), HasSubstr("is damaged; build the index again")) << name;
  }
  for (const auto& [key, value] : Parts(whole).metadata) {
    if (key.find("options.") == std::string::npos) continue;
    Parts parts(whole);
    parts.metadata.erase(key);
    EXPECT_THAT(refusal(parts.file()), HasSubstr("its metadata has no " + key)) << key;
    if (value == head().name()) continue;
    parts.metadata[key] = "many";
    EXPECT_THAT(refusal(parts.file()), HasSubstr("expected a number"));
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
      const auto loaded = load_index(path, world().layer);
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
                         [](const ::testing::TestParamInfo<Backend>& instance) {
                           std::string name = instance.param.name;
                           std::replace_if(
                               name.begin(), name.end(), [](char c) { return c == '-' || c == ':'; }, '_');
                           return name;
                         });

TEST(IndexFiles, EveryClassLoadsItsKindAndRefusesOthers) {
  const TemporaryFolder folder(memory_folder());
  const auto path = folder.path() / "f";
  save_index(*Quantized::build(world().layer, {.refine_width = 20}), path);
  expect_same_answers(*Quantized::build(world().layer, {.refine_width = 20}),
                      *load_index<Quantized>(path, world().layer), world().test);
  EXPECT_THAT(
      error_of([&] { load_index<SvdSoftmax>(path, world().layer); }),
      HasSubstr(R"(holds an index of kind "quantized", expected "svd"; load_index() loads any kind)"));
  save_index(*Exact::make(world().layer), path);
  EXPECT_EQ(load_index<Exact>(path, world().layer)->name(), "exact");
  EXPECT_THAT(error_of([&] { load_index<Fused>(path, world().layer); }), HasSubstr(R"(expected "fused")"));
}

TEST(IndexFiles, FilesThatAreNoIndexSaySo) {
  const TemporaryFolder folder(memory_folder());
  EXPECT_THAT(error_of([&] { load_index(folder.path() / "absent", world().layer); }),
              AllOf(HasSubstr("cannot open"), ::testing::Not(HasSubstr("damaged"))));
  EXPECT_THAT(error_of([&] { load_index(folder.path(), world().layer); }), HasSubstr("not a regular file"));
  EXPECT_THAT(refusal(""), HasSubstr("damaged or no index file"));
  EXPECT_THAT(refusal("hello, world"), HasSubstr("damaged or no index file"));
  const std::vector<float> values(6);
  write_safetensors(folder.path() / "head", std::array{tensor_view("weight", {2, 3}, values)});
  EXPECT_THAT(error_of([&] { load_index(folder.path() / "head", world().layer); }),
              HasSubstr("is a safetensors file but no index file"));
  EXPECT_THAT(error_of([&] { verify_index(folder.path() / "head"); }), HasSubstr("no index file"));
}

/// A backend of a user's own.
class Constant final : public TopKSoftmax {
 public:
  using TopKSoftmax::TopKSoftmax;
  explicit Constant(SoftmaxLayer layer) : TopKSoftmax(std::move(layer)) {}
  std::string_view name() const override { return "constant"; }
  std::size_t index_bytes() const override { return 0; }

 private:
  void do_query(const Query&, Workspace&, TopK&) const override {}
};

TEST(IndexFiles, BackendsWithoutOneSaySo) {
  const TemporaryFolder folder(memory_folder());
  EXPECT_THAT(error_of([&] { save_index(Constant(world().layer), folder.path() / "f"); }),
              HasSubstr("constant: this backend has no index that can be saved"));
  EXPECT_TRUE(folder.list().empty());
}

TEST(IndexFiles, TensorsOffCacheLinesAreCopied) {
  // As other programs write them.
  const Parts parts(saved(*Certified::build(world().layer, world().train, {.width = 16})));
  const TemporaryFolder folder(memory_folder());
  const auto path = folder.write("f", parts.file(8));
  verify_index(path);
  expect_same_answers(*Certified::build(world().layer, world().train, {.width = 16}),
                      *load_index(path, world().layer), world().test);
}

TEST(IndexFiles, IndexesLieWithinEachOtherToALimit) {
  const TemporaryFolder folder(memory_folder());
  std::shared_ptr<const TopKSoftmax> head = Shortlist::build(world().layer);
  for (std::size_t depth = 0; depth < 8; ++depth) head = Certify::wrap(head, world().train, {.width = 16});
  save_index(*head, folder.path() / "f");
  const auto loaded = load_index(folder.path() / "f", world().layer);
  EXPECT_EQ(loaded->name(), head->name());
  expect_same_answers(*head, *loaded, world().test.topRows(2));
  head = Certify::wrap(head, world().train, {.width = 16});
  EXPECT_THAT(error_of([&] { save_index(*head, folder.path() / "g"); }),
              HasSubstr("more than 8 indexes are within each other"));
  // Without end, as no honest file is.
  Parts parts(saved(*Certify::wrap(Exact::make(world().layer), world().train, {.width = 16})));
  std::string prefix;
  for (int depth = 0; depth < 1000; ++depth, prefix += "wrapped.")
    parts.metadata[prefix + "kind"] = "certify";
  EXPECT_THAT(refusal(parts.file()), HasSubstr("more than 8 indexes are within each other; it is damaged"));
}

TEST(IndexFiles, AListForSentencesIsKept) {
  std::istringstream table("a x 0.5\nb x 0.4\nc y 0.9\n");
  const std::vector<std::string> source = {"x", "y"};
  const std::vector<std::string> target = {"a", "b", "c"};
  const AlignmentLists lists = AlignmentLists::read(table, "table", source, target);
  const auto shortlist = Shortlist::build(world().layer, {.top_frequent = 40});
  const TokenId sentence[] = {0};
  const auto of_sentence = shortlist->for_sentences(lists, sentence);
  const TemporaryFolder folder(memory_folder());
  save_index(*of_sentence, folder.path() / "f");
  const auto loaded = load_index<Shortlist>(folder.path() / "f", world().layer);
  const auto tokens = [](const Shortlist& list) {
    return std::vector<TokenId>(list.screener().tokens().begin(), list.screener().tokens().end());
  };
  EXPECT_EQ(tokens(*loaded), tokens(*of_sentence));
  const TokenId other[] = {1};
  EXPECT_EQ(tokens(*loaded->for_sentences(lists, other)), tokens(*of_sentence->for_sentences(lists, other)));
}

/// Runs `child` in a process of its own and returns its id.
template <class Child>
pid_t in_child(const Child& child) {
  const pid_t id = fork();
  if (id == 0) {
    int status = 1;
    try {
      status = child();
    } catch (...) {
      status = 2;
    }
    _exit(status);
  }
  return id;
}

TEST(IndexFiles, AKilledSaveLeavesTheOldOrTheNewFileWhole) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "f";
  const auto one = Quantized::build(world().layer, {.refine_width = 20});
  const auto two = Quantized::build(world().layer, {.refine_width = 30});
  const std::string bytes[] = {saved(*one), saved(*two)};
  std::mt19937 random(5);
  const auto begin = std::chrono::steady_clock::now();
  save_index(*two, path);
  const auto takes =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin);
  std::size_t met[2] = {};
  for (std::size_t round = 0; round < 200; ++round) {
    const TopKSoftmax* const heads[] = {one.get(), two.get()};
    const pid_t child = in_child([&] {
      for (std::size_t i = round;; ++i) save_index(*heads[i % 2], path);
      return 0;
    });
    ASSERT_GT(child, 0);
    const auto longest = static_cast<std::uint32_t>(std::min<std::int64_t>(1000 + 2 * takes.count(), 20'000));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % longest));
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "saving failed in round " << round;
    const std::string found = read_bytes(path);
    ASSERT_TRUE(found == bytes[0] || found == bytes[1]) << round;
    ++met[found == bytes[0] ? 0 : 1];
  }
  EXPECT_GT(met[0], 0U);
  EXPECT_GT(met[1], 0U);
  verify_index(path);
  load_index(path, world().layer);
}

TEST(IndexFiles, AFullDiskLeavesTheOldFileWhole) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "f";
  const auto head = Quantized::build(world().layer);
  save_index(*head, path);
  const std::string before = read_bytes(path);
  for (const rlim_t limit : {rlim_t{0}, rlim_t{100}, rlim_t{4096}, static_cast<rlim_t>(before.size() - 1)}) {
    // A limit on the size of files stands for a full disk.
    const pid_t child = in_child([&] {
      std::signal(SIGXFSZ, SIG_IGN);
      const rlimit small = {limit, limit};
      if (setrlimit(RLIMIT_FSIZE, &small) != 0) return 3;
      const std::string message =
          error_of([&] { save_index(*Quantized::build(world().layer, {.refine_width = 9}), path); });
      return message.find("cannot write") != std::string::npos ? 0 : 4;
    });
    ASSERT_GT(child, 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    EXPECT_EQ(read_bytes(path), before);
    EXPECT_THAT(folder.list(), ElementsAre("f"));
  }
}

}  // namespace
}  // namespace topksoftmax
