// SPDX-License-Identifier: Apache-2.0
//
// topksoftmax build, inspect and tune --out as their user sees them: the program itself is run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/program.hpp"
#include "bench/tiny_head.hpp"
#include "harness/backends/build_backend.hpp"
#include "harness/heads/head.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/io/index_file.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/registry/standard.hpp"
#include "topksoftmax/registry/standard_loader.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ProgramRun;
using testing::random_matrix;
using testing::run_tool;
using testing::TinyHead;

class IndexCommands : public ::testing::Test {
 protected:
  void SetUp() override {
    write_head(head_, 1);
    write_head(other_, 9);
  }

  /// A head file without contexts.test: building needs none.
  static void write_head(const std::filesystem::path& path, unsigned seed) {
    TinyHead head;
    head.weight = random_matrix(TinyHead::kVocab, TinyHead::kDim, seed, 0.3F);
    head.test.resize(0, TinyHead::kDim);
    head.write(path, {{"name", "tiny"}, {"provenance", "made\x1b[31m up"}});
  }

  ProgramRun build(const std::string& arguments) const {
    return run_tool("build --head " + head_.string() + " " + arguments);
  }
  ProgramRun inspect(const std::filesystem::path& file, const std::string& arguments = "") const {
    return run_tool("inspect " + file.string() + " " + arguments);
  }

  testing::TemporaryFolder folder_;
  std::filesystem::path head_ = folder_.path() / "tiny.safetensors";
  std::filesystem::path other_ = folder_.path() / "other.safetensors";
  std::filesystem::path index_ = folder_.path() / "head.index";
};

/// An error is one line on stderr and an exit code that is not 0.
void expect_error(const ProgramRun& run, int exit_code, const std::string& part) {
  EXPECT_EQ(run.exit_code, exit_code);
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  EXPECT_THAT(run.err, HasSubstr(part));
}

TEST_F(IndexCommands, WhatIsBuiltAnswersAsTheRegistrysBackend) {
  const bench::Head head = bench::load_head({.head = head_, .contexts = {}, .tensor = {}, .bias = {}});
  const RowMajorMatrix contexts = clustered_contexts(20, TinyHead::kDim, 5, 7);
  const Registry registry = Registry::standard();
  for (const BackendDescription& backend : registry.descriptions()) {
    SCOPED_TRACE(backend.name);
    const ProgramRun built = build("--backend " + backend.name + " --out " + index_.string());
    ASSERT_EQ(built.exit_code, 0) << built.err;
    EXPECT_EQ(built.err, "");
    EXPECT_THAT(built.out, HasSubstr(", an index of kind "));
    EXPECT_THAT(built.out,
                HasSubstr(std::to_string(std::filesystem::file_size(index_)) + " bytes\nbuilt in "));
    EXPECT_THAT(built.out, HasSubstr("for tiny: V = 300, d = 16"));

    const ProgramRun seen = inspect(index_, "--verify --head " + head_.string());
    EXPECT_EQ(seen.exit_code, 0) << seen.err;
    for (const char* part : {": an index of kind ", ", format version 1\nlayer: V = 300, d = 16, F32, hash ",
                             "the checksum holds\n", "fits the layer of "}) {
      EXPECT_THAT(seen.out, HasSubstr(part));
    }

    const auto expected = backend.build(bench::material_of(head));
    const auto loaded = load_index(index_, head.layer);
    for (Eigen::Index i = 0; i < contexts.rows(); ++i) {
      const TopK a = expected->query(contexts.row(i), {.k = 7});
      const TopK b = loaded->query(contexts.row(i), {.k = 7});
      EXPECT_EQ(a.ids, b.ids);
      EXPECT_EQ(a.logits, b.logits);
    }
  }
}

TEST_F(IndexCommands, InspectShowsOptionsAndTensors) {
  ASSERT_EQ(build("--backend l2s-kmeans --set l2s-kmeans.clusters=4 --out " + index_.string()).exit_code, 0);
  const ProgramRun run = inspect(index_);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  for (const char* part : {"head.index: an index of kind l2s,", "\nclusters = 4\n", "\nname = l2s-kmeans\n",
                           "\ntensor ", "\nclusters          F32  [4, 16] ", " 256\n", "\noffsets "}) {
    EXPECT_THAT(run.out, HasSubstr(part));
  }
  EXPECT_THAT(run.out,
              HasSubstr("the file has " + std::to_string(std::filesystem::file_size(index_)) + "\n"));
  EXPECT_THAT(run.out, Not(HasSubstr("__padding__")));
}

TEST_F(IndexCommands, InspectKnowsHeadFilesAndOthers) {
  const ProgramRun head = inspect(head_);
  EXPECT_EQ(head.exit_code, 0) << head.err;
  for (const char* part :
       {"a head file: tiny\nlayer: V = 300, d = 16, F32, with a bias\n",
        "contexts: 400 to learn from, 0 to judge on\n", "counts: of every token\n",
        "provenance: made?[31m up\n", "\nweight ", "[300, 16]", "4 tensors, 47200 bytes; the file has "}) {
    EXPECT_THAT(head.out, HasSubstr(part));
  }
  const std::filesystem::path plain = folder_.path() / "plain.safetensors";
  const std::vector<float> floats(6);
  write_safetensors(plain, std::vector<TensorView>{tensor_view("six", {2, 3}, floats)});
  const ProgramRun run = inspect(plain);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("a safetensors file, neither an index nor a head file\n"));
  EXPECT_THAT(run.out, HasSubstr("\nsix      F32  [2, 3]     24\n1 tensor, 24 bytes; "));
  expect_error(inspect(plain, "--verify"), 1, "is a safetensors file but not an index file");
  expect_error(inspect(plain, "--head " + head_.string()), 1, "is a safetensors file but not an index file");
}

TEST_F(IndexCommands, InspectTellsHowFarOffLogZWas) {
  const std::filesystem::path json = folder_.path() / "inspected.json";
  ASSERT_EQ(build("--backend l2s --set l2s.clusters=3 --out " + index_.string()).exit_code, 0);
  const ProgramRun run = inspect(index_, "--json " + json.string());
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("\nlog Z: off by 0."));
  const nlohmann::json error = nlohmann::json::parse(testing::read_text(json)).at("log_z_error");
  EXPECT_GT(error.at("median").get<double>(), 0.0);
  EXPECT_GE(error.at("p99").get<double>(), error.at("median").get<double>());
  ASSERT_EQ(build("--backend quantized --out " + index_.string()).exit_code, 0);
  EXPECT_THAT(inspect(index_).out, Not(HasSubstr("log Z")));
}

TEST_F(IndexCommands, InspectTakesTheNamesOfTensors) {
  const RowMajorMatrix weight = random_matrix(TinyHead::kVocab, TinyHead::kDim, 3, 0.3F);
  const std::filesystem::path model = folder_.path() / "model.safetensors";
  const std::vector<float> values(weight.data(), weight.data() + weight.size());
  write_safetensors(
      model, std::vector<TensorView>{tensor_view("generator", {TinyHead::kVocab, TinyHead::kDim}, values)});
  const std::string head = "--head " + model.string();
  const ProgramRun built =
      run_tool("build " + head + " --tensor generator --backend quantized --out " + index_.string());
  ASSERT_EQ(built.exit_code, 0) << built.err;
  EXPECT_THAT(inspect(index_, head + " --tensor generator").out, HasSubstr("fits the layer of "));
  EXPECT_EQ(inspect(index_, head).exit_code, 1);
  expect_error(inspect(index_, "--tensor generator"), 2, "--tensor and --bias need --head");
}

TEST_F(IndexCommands, InspectSaysWhyAFileIsNoHead) {
  const std::filesystem::path bad = folder_.path() / "bad.safetensors";
  const std::vector<float> floats(6);
  write_safetensors(
      bad, std::vector<TensorView>{tensor_view("weight", {2, 3}, floats), tensor_view("bias", {6}, floats)});
  const ProgramRun run = inspect(bad);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("neither an index nor a head file\nno head file because "));
  EXPECT_THAT(run.out, HasSubstr("bias"));
}

TEST_F(IndexCommands, InspectShowsNothingThatSteersATerminal) {
  const std::filesystem::path steering = folder_.path() / "steering.safetensors";
  const std::vector<float> floats(6);
  // C0, C1 (U+009B), a right-to-left override (U+202E), an isolate (U+2066); a bullet (U+2022) is harmless.
  const std::string name = "a\x1b b\xC2\x9B c\xE2\x80\xAE d\xE2\x81\xA6 e\xE2\x80\xA2 f\xC2\xB5";
  write_safetensors(steering, std::vector<TensorView>{tensor_view("weight", {2, 3}, floats)},
                    {{"name", name}});
  EXPECT_THAT(inspect(steering).out, HasSubstr("a head file: a? b? c? d? e\xE2\x80\xA2 f\xC2\xB5\n"));
}

TEST_F(IndexCommands, InspectSaysWhatDoesNotHold) {
  ASSERT_EQ(build("--backend svd --out " + index_.string()).exit_code, 0);
  const ProgramRun misfit = inspect(index_, "--head " + other_.string());
  expect_error(misfit, 1, "was built for another layer");
  EXPECT_THAT(misfit.out, HasSubstr(": an index of kind svd"));
  std::fstream file(index_, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-5, std::ios::end);
  file.put('\x55');
  file.close();
  EXPECT_EQ(inspect(index_).exit_code, 0);
  expect_error(inspect(index_, "--verify"), 1, "its checksum is");
  expect_error(inspect(folder_.write("text", "hello")), 1, "text: ");
  expect_error(inspect(folder_.path() / "absent"), 1, "absent");
  expect_error(run_tool("inspect"), 2, "file");
}

TEST_F(IndexCommands, BuildRefusesWhatItCannotDo) {
  const std::string out = " --out " + index_.string();
  expect_error(build("--backend unheard-of" + out), 2, "there is no backend \"unheard-of\"; there are exact");
  expect_error(build("--backend exact,fused" + out), 2, "there is no backend \"exact,fused\"");
  expect_error(build("--backend all" + out), 2, "there is no backend \"all\"");
  expect_error(build("--backend svd --set svd.colour=3" + out), 2, "svd has no parameter \"colour\"");
  expect_error(build("--backend l2s --set l2s.clusters=0" + out), 2,
               "l2s.clusters must be at least 1, not \"0\"");
  expect_error(build("--backend svd --set svd.preview_width=1000" + out), 1, "svd: preview_width is 1000");
  expect_error(build("--backend peer:eigen" + out), 1, "no index that can be saved");
  expect_error(build("--backend fused"), 2, "--out");
  expect_error(build("--backend svd --set fgd.M=3" + out), 2,
               "--set names the backend fgd, but svd is built");
  expect_error(build("--backend fused --out /nonexistent/head.index"), 1,
               "/nonexistent/head.index: cannot create");
  expect_error(build("--backend fused --out " + folder_.path().string()), 1, "cannot replace a folder");
  expect_error(build("--backend fused --out /dev/null"), 1, "cannot replace what is not a regular file");
  expect_error(build("--backend fused --out ''"), 2, "--out: must be the name of a file");
  expect_error(build("--backend fused --out " + folder_.path().string() + "/" + std::string(300, 'x')), 1,
               "cannot ");
  expect_error(build("--backend fused --out " + head_.string()), 2, "--out is the file of --head");
  const std::string contexts = folder_.write("contexts.npy", "contexts").string();
  for (const std::string option : {"--out ", "--out x --json "}) {
    expect_error(build("--backend fused --contexts " + contexts + " " + option + contexts), 2,
                 " is the file of --contexts, " + contexts + "; name another");
  }
  EXPECT_EQ(testing::read_bytes(contexts), "contexts");
  const std::filesystem::path link = folder_.path() / "link";
  std::filesystem::create_symlink("link", link);
  expect_error(build("--backend fused --out " + link.string()), 1, "link: cannot ");
  std::filesystem::remove(link);
  std::filesystem::create_symlink("/nonexistent/head.index", link);
  expect_error(build("--backend fused --out " + link.string()), 1, "link: cannot ");
  expect_error(run_tool("build --head /nonexistent.safetensors --backend fused" + out), 1,
               "/nonexistent.safetensors");
  EXPECT_FALSE(std::filesystem::exists(index_));
}

TEST_F(IndexCommands, TuneSavesTheOneToTake) {
  const std::string head = testing::read_bytes(head_);
  const std::string tune = "tune --head " + head_.string() + " --target p5=1 --max-seconds 0 --out ";
  const ProgramRun run = run_tool(tune + index_.string());
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("head.index: "));
  EXPECT_THAT(run.out, HasSubstr("load it with load_index() and ask it with {.k = 5}, or\n"));
  EXPECT_THAT(run.out, HasSubstr("\ntopksoftmax ask --head " + head_.string() + " --index " +
                                 index_.string() + " --k 5 --contexts FILE\n"));
  const auto loaded =
      load_index(index_, bench::load_head({.head = head_, .contexts = {}, .tensor = {}, .bias = {}}).layer);
  EXPECT_THAT(run.out, HasSubstr("\n=> " + std::string(loaded->name())));
  expect_error(run_tool(tune + "/nonexistent/head.index"), 1, "/nonexistent/head.index: cannot create");
  EXPECT_EQ(testing::read_bytes(head_), head);
  for (const std::string same : {"out", "./out"}) {
    expect_error(run_tool("tune --head " + head_.string() + " --max-seconds 0 --json " +
                          (folder_.path() / "out").string() + " --out " + (folder_.path() / same).string()),
                 2, "--out and --json are one file");
  }
}

TEST_F(IndexCommands, AnIndexIsAskedWithTheEffortThatItHolds) {
  const SoftmaxLayer layer =
      bench::load_head({.head = head_, .contexts = {}, .tensor = {}, .bias = {}}).layer;
  const auto built = Registry::standard().build("fgd", {.layer = layer}, {{"ef_search", "200"}});
  save_index(*built, index_);
  EXPECT_THAT(inspect(index_).out, Not(HasSubstr("\neffort: ")));
  const std::filesystem::path contexts = folder_.path() / "contexts.safetensors";
  TinyHead().write(contexts, {{"name", "tiny"}, {"provenance", "made up"}});
  const auto answers = [&](const std::string& options) {
    const ProgramRun run = run_tool("ask --head " + head_.string() + " --index " + index_.string() +
                                    " --contexts " + contexts.string() + " --k 5" + options);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.out;
  };
  const std::string thorough = answers("");
  const std::string hasty = answers(" --effort 5");
  ASSERT_NE(thorough, hasty);

  built->set_usual_effort(5);
  save_index(*built, index_);
  EXPECT_THAT(inspect(index_, "--verify").out, HasSubstr("\neffort: 5, of queries that name none\n"));
  EXPECT_EQ(answers(""), hasty);
  EXPECT_EQ(answers(" --effort 200"), thorough);
}

TEST_F(IndexCommands, TuneSavesItsIndexThoughItsJsonCannotBeWritten) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full";
  expect_error(run_tool("tune --head " + head_.string() +
                        " --target p5=1 --max-seconds 0 --json /dev/full --out " + index_.string()),
               1, "/dev/full: cannot be written");
  EXPECT_EQ(inspect(index_, "--verify").exit_code, 0);
}

TEST_F(IndexCommands, InspectWritesOverNothingThatItReads) {
  ASSERT_EQ(build("--backend svd --out " + index_.string()).exit_code, 0);
  const std::string index = testing::read_bytes(index_);
  const std::string head = testing::read_bytes(head_);
  expect_error(inspect(index_, "--json " + index_.string()), 2, "--json is the file of FILE, ");
  expect_error(inspect(index_, "--head " + head_.string() + " --json " + head_.string()), 2,
               "--json is the file of --head, ");
  EXPECT_EQ(testing::read_bytes(index_), index);
  EXPECT_EQ(testing::read_bytes(head_), head);
}

TEST_F(IndexCommands, WriteOverNoFileOfAModel) {
  const std::filesystem::path model = folder_.path() / "model";
  std::filesystem::create_directory(model);
  for (const char* const name : {"config.json", "model.safetensors", "model.safetensors.index.json"}) {
    folder_.write(std::string("model/") + name, "a model's");
    const std::string out = (model / name).string();
    for (const char* const head : {"", "/model.safetensors.index.json"}) {
      expect_error(run_tool("build --backend fused --head " + model.string() + head + " --out " + out), 2,
                   " of --head, " + out + "; name another");
    }
  }
  // Caches of models have links in their folders.
  const std::filesystem::path shard = model / "shard.safetensors";
  std::filesystem::create_symlink(folder_.write("blob", "a model's"), shard);
  expect_error(run_tool("build --backend fused --head " + model.string() + " --out " + shard.string()), 2,
               "--out is a file of the model of --head, ");
  // An index may name its shards as it likes.
  const std::filesystem::path named = folder_.path() / "named";
  std::filesystem::create_directory(named);
  std::filesystem::copy(head_, named / "weights.bin");
  folder_.write("named/model.safetensors.index.json", R"({"weight_map": {"weight": "weights.bin"}})");
  for (const char* const head : {"", "/model.safetensors.index.json"}) {
    expect_error(run_tool("build --backend fused --head " + named.string() + head + " --out " +
                          (named / "weights.bin").string()),
                 2, "--out is a file of the model of --head, ");
  }
  // What is no part of it may lie beside it.
  folder_.write("model/fused.index", "of last year");
  const ProgramRun beside = run_tool("build --backend fused --head " + model.string() + " --out " +
                                     (model / "fused.index").string());
  EXPECT_THAT(beside.err, Not(HasSubstr("name another")));
}

TEST_F(IndexCommands, WriteOverNothingThatIsReadWithAFileOfTensors) {
  for (const char* const name : {"config.json", "model.safetensors.index.json"}) {
    const std::string out = folder_.write(name, "a model's").string();
    expect_error(build("--backend fused --out " + out), 2, "--out is a file of the model of --head, " + out);
    EXPECT_EQ(testing::read_bytes(out), "a model's");
  }
  EXPECT_EQ(build("--backend fused --out " + other_.string()).exit_code, 0);
}

TEST_F(IndexCommands, AreListedInTheHelp) {
  EXPECT_THAT(run_tool("--help").out, HasSubstr("inspect"));
  EXPECT_THAT(run_tool("build --help").out, HasSubstr("--backend"));
}

TEST_F(IndexCommands, RefuseEmptyNamesOfFiles) {
  const std::string refusal = ": must be the name of a file";
  expect_error(inspect("''"), 2, "file" + refusal);
  expect_error(inspect(head_, "--head ''"), 2, "--head" + refusal);
  for (const char* const option : {"--index", "--learn", "--contexts"}) {
    expect_error(run_tool("ask --head " + head_.string() + " " + option + " ''"), 2, option + refusal);
  }
  for (const char* const option : {"--head", "--contexts", "--text"}) {
    expect_error(run_tool("measure " + std::string(option) + " ''"), 2, option + refusal);
  }
}

}  // namespace
}  // namespace topksoftmax
