// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/index_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "support/same_answers.hpp"
#include "support/saved_index.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/registry/standard.hpp"
#include "topksoftmax/registry/standard_loader.hpp"
#include "topksoftmax/topksoftmax.hpp"

namespace topksoftmax {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::error_of;
using testing::expect_same_answers;
using ::testing::HasSubstr;
using testing::memory_folder;
using testing::Parts;
using testing::read_bytes;
using testing::saved;
using testing::TemporaryFolder;
using testing::world;

std::string refusal(const std::string& bytes) {
  return testing::refusal(bytes, world().layer, standard_loader());
}

TEST(IndexFiles, EveryClassLoadsItsKindAndRefusesOthers) {
  const TemporaryFolder folder(memory_folder());
  const auto path = folder.path() / "f";
  save_index(*Quantized::build(world().layer, {.refine_width = 20}), path);
  expect_same_answers(*Quantized::build(world().layer, {.refine_width = 20}),
                      *load_index<Quantized>(path, world().layer), world().test);
  EXPECT_THAT(
      error_of([&] { load_index<SvdSoftmax>(path, world().layer); }),
      HasSubstr(R"(holds an index of kind "quantized", expected "svd"; load_index() loads any kind)"));
  EXPECT_EQ(load_index<Quantized>(path, world().layer, {.layer_check = LayerCheck::whole})->name(),
            "quantized");
  save_index(*Exact::make(world().layer), path);
  EXPECT_EQ(load_index<Exact>(path, world().layer)->name(), "exact");
  EXPECT_THAT(error_of([&] { load_index<Fused>(path, world().layer); }), HasSubstr(R"(expected "fused")"));
}

TEST(IndexFiles, HoldTheEffortOfQueriesThatNameNone) {
  const TemporaryFolder folder(memory_folder());
  const auto path = folder.path() / "f";
  const Eigen::VectorXf h = world().test.row(0);
  const auto scored = [&h](const TopKSoftmax& head, std::size_t effort) {
    return head.query(h, {.k = 5, .effort = effort}).work.candidates;
  };
  const std::shared_ptr<TopKSoftmax> plain = Quantized::build(world().layer, {.refine_width = 20});
  EXPECT_FALSE(Parts(saved(*plain)).metadata.contains("effort"));
  save_index(*plain, path);
  EXPECT_EQ(load_index(path, world().layer)->usual_effort(), 0U);

  const std::shared_ptr<TopKSoftmax> tuned = Quantized::build(world().layer, {.refine_width = 20});
  tuned->set_usual_effort(33);
  save_index(*tuned, path);
  std::vector<std::unique_ptr<TopKSoftmax>> loaded;
  loaded.push_back(load_index(path, world().layer));
  loaded.push_back(load_index<Quantized>(path, world().layer));
  loaded.push_back(load_index(path, world().layer, Registry::standard()));
  for (const std::unique_ptr<TopKSoftmax>& head : loaded) {
    EXPECT_EQ(head->usual_effort(), 33U);
    EXPECT_EQ(scored(*head, 0), 33U);
    EXPECT_EQ(scored(*head, 40), 40U);
    head->set_usual_effort(0);
    EXPECT_EQ(scored(*head, 0), 20U);
  }
  std::vector<TokenId> tokens(static_cast<std::size_t>(testing::kVocab));
  std::iota(tokens.begin(), tokens.end(), 0);
  save_index(*MappedVocabulary::wrap(tuned, tokens, tokens.size()), path);
  EXPECT_EQ(scored(*load_index(path, world().layer), 0), 33U);

  Parts parts(saved(*tuned));
  for (const char* const no_number : {"", "-1", "33 rows", "1e3", "99999999999999999999"}) {
    parts.metadata["effort"] = no_number;
    EXPECT_THAT(refusal(parts.file()), HasSubstr("its metadata effort is \"" + std::string(no_number) +
                                                 "\", expected a number; it is damaged"));
  }
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
              AllOf(HasSubstr("is a safetensors file but not an index file"),
                    HasSubstr("indexes are what save_index() and \"topksoftmax build\" write")));
  EXPECT_THAT(error_of([&] { verify_index(folder.path() / "head"); }), HasSubstr("not an index file"));
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

TEST(IndexFiles, CopiesDoNotCareWhatBecomesOfTheirFile) {
  const SoftmaxLayer& layer = world().layer;
  const auto certified = Certified::build(layer, world().train, {.width = 16});
  const auto list = Shortlist::build(layer, {.top_frequent = 60});
  for (const TopKSoftmax* const backend :
       {static_cast<const TopKSoftmax*>(certified.get()), static_cast<const TopKSoftmax*>(list.get())}) {
    const std::string bytes = saved(*backend);
    const TemporaryFolder folder(memory_folder());
    const auto path = folder.write("changed.index", bytes);
    const auto copied = load_index(path, layer, {.access = FileAccess::copied});
    {
      std::ofstream file(path, std::ios::in | std::ios::out | std::ios::binary);  // in place
      file << std::string(bytes.size(), '\x7f');
    }
    expect_same_answers(*copied, *backend, world().test);
    std::filesystem::resize_file(path, 0);
    expect_same_answers(*copied, *backend, world().test);
    EXPECT_THAT(error_of([&] { load_index(path, layer, {.access = FileAccess::copied}); }),
                HasSubstr("is empty"));
  }
}

/// W [V,d] whose rows are a page each, all others of which can be taken away.
class PagedRows {
 public:
  static constexpr Eigen::Index kRows = 1600;

  PagedRows() {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    dim_ = static_cast<Eigen::Index>(page / sizeof(float));
    void* const start =
        mmap(nullptr, kRows * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) throw std::runtime_error("no memory for rows");
    W_ = static_cast<float*>(start);
    Eigen::Map<RowMajorMatrix>(W_, kRows, dim_) = testing::random_matrix(kRows, dim_, 4);
  }
  ~PagedRows() { munmap(W_, bytes()); }
  PagedRows(const PagedRows&) = delete;
  PagedRows& operator=(const PagedRows&) = delete;

  SoftmaxLayer layer() const {
    return SoftmaxLayer::borrow(Eigen::Map<const RowMajorMatrix>(W_, kRows, dim_));
  }
  Eigen::Index dim() const { return dim_; }
  float& weight(Eigen::Index row) { return W_[row * dim_]; }

  /// Whether loading compares a row: 1,024 of them, evenly spread from the first to the last.
  static bool is_sampled(Eigen::Index row) {
    for (Eigen::Index i = 0; i < 1024; ++i) {
      if (i * (kRows - 1) / 1023 == row) return true;
    }
    return false;
  }

  /// Who reads a row that is not sampled from now on dies.
  void take_the_others_away() {
    for (Eigen::Index row = 0; row < kRows; ++row) {
      if (!is_sampled(row)) mprotect(W_ + row * dim_, bytes() / kRows, PROT_NONE);
    }
  }
  void give_them_back() { mprotect(W_, bytes(), PROT_READ | PROT_WRITE); }

 private:
  std::size_t bytes() const { return static_cast<std::size_t>(kRows * dim_) * sizeof(float); }

  Eigen::Index dim_ = 0;
  float* W_ = nullptr;
};

TEST(IndexFiles, LoadingReadsNoMoreOfTheLayerThanASample) {
  PagedRows rows;
  const SoftmaxLayer layer = rows.layer();
  const TemporaryFolder folder(memory_folder());
  const auto path = folder.path() / "f";
  save_index(*Quantized::build(layer, {.refine_width = 20}), path);
  rows.take_the_others_away();
  const auto loaded = load_index(path, layer);
  rows.give_them_back();
  expect_same_answers(*loaded, *Quantized::build(layer, {.refine_width = 20}),
                      testing::random_matrix(3, rows.dim(), 8));
}

TEST(IndexFiles, AWholeCheckFindsTheRowThatASampleDoesNotSee) {
  PagedRows rows;
  const TemporaryFolder folder(memory_folder());
  const auto path = folder.path() / "f";
  save_index(*Fused::make(rows.layer()), path);
  const LoadOptions whole = {.layer_check = LayerCheck::whole};
  verify_layer(path, rows.layer());
  EXPECT_NE(load_index(path, rows.layer(), whole), nullptr);
  const auto stale = HasSubstr("was built for another layer");
  Eigen::Index seen = 800;
  while (!PagedRows::is_sampled(seen)) ++seen;
  Eigen::Index unseen = 800;
  while (PagedRows::is_sampled(unseen)) ++unseen;
  rows.weight(unseen) += 1.0F;
  EXPECT_NE(load_index(path, rows.layer()), nullptr);
  EXPECT_THAT(error_of([&] { load_index(path, rows.layer(), whole); }), stale);
  EXPECT_THAT(error_of([&] { verify_layer(path, rows.layer()); }), stale);
  rows.weight(unseen) -= 1.0F;
  for (const Eigen::Index row : {Eigen::Index{0}, seen, PagedRows::kRows - 1}) {
    rows.weight(row) += 1.0F;
    EXPECT_THAT(error_of([&] { load_index(path, rows.layer()); }), stale) << row;
    rows.weight(row) -= 1.0F;
  }
}

TEST(IndexFiles, FilesWithoutASampleAreComparedWhole) {
  PagedRows rows;
  Parts parts(saved(*Fused::make(rows.layer())));
  ASSERT_EQ(parts.metadata.erase("layer_sample"), 1U);
  parts.metadata.erase("checksum");
  const TemporaryFolder folder(memory_folder());
  const auto path = folder.write("f", parts.file());
  EXPECT_NE(load_index(path, rows.layer()), nullptr);
  for (Eigen::Index row = 0; row < PagedRows::kRows; row += 99) {
    rows.weight(row) += 1.0F;
    EXPECT_THAT(error_of([&] { load_index(path, rows.layer()); }), HasSubstr("its layer_hash is")) << row;
    rows.weight(row) -= 1.0F;
  }
}

TEST(IndexFiles, VerifyingFindsOneBitThatIsAnother) {
  Parts parts(saved(*Quantized::build(world().layer, {.refine_width = 20})));
  const TemporaryFolder folder(memory_folder());
  verify_index(folder.write("whole", parts.file()));
  std::string& codes = parts.bytes.at("prefixes");
  codes[codes.size() / 2] = static_cast<char>(codes[codes.size() / 2] ^ 1);
  EXPECT_THAT(error_of([&] { verify_index(folder.write("f", parts.file())); }), HasSubstr("its checksum is"));
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

/// TOPKSOFTMAX_KILLS: how many saves are killed.
std::size_t wanted_kills() {
  const char* const set = std::getenv("TOPKSOFTMAX_KILLS");
  return set == nullptr ? 200 : std::strtoull(set, nullptr, 10);
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
  const std::size_t kills = wanted_kills();
  const auto both_met = [&met] { return met[0] > 0 && met[1] > 0; };
  // On a busy machine saves have more and more time, until one comes through.
  for (std::size_t round = 0; round < kills || (!both_met() && round < 50 * kills); ++round) {
    const TopKSoftmax* const heads[] = {one.get(), two.get()};
    const pid_t child = in_child([&] {
      for (std::size_t i = round;; ++i) save_index(*heads[i % 2], path);
      return 0;
    });
    ASSERT_GT(child, 0);
    const auto longest = static_cast<std::uint32_t>(std::min<std::int64_t>(1000 + 2 * takes.count(), 20'000));
    const auto most = longest * static_cast<std::uint32_t>(1 + round / kills);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % most));
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
