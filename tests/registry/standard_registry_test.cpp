// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "conformance/backends.hpp"
#include "registry/written_code.hpp"
#include "support/errors.hpp"
#include "support/executors.hpp"
#include "support/layers.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/io/index_file.hpp"
#include "topksoftmax/mapped_vocabulary.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/registry/standard.hpp"
#include "topksoftmax/registry/standard_loader.hpp"
#include "topksoftmax/registry/tables.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::random_layer;

const Registry& standard() {
  static const Registry registry = Registry::standard();
  return registry;
}

TEST(StandardRegistry, LoadsTheKindsThatTheStandardLoaderKnows) {
  const std::vector<std::string_view> light = StandardLoader::kinds();
  const std::vector<std::string> ours = standard().kinds();
  EXPECT_EQ(std::set<std::string>(light.begin(), light.end()),
            std::set<std::string>(ours.begin(), ours.end()));
}

TEST(StandardRegistry, LoadsAMappedVocabulary) {
  const testing::TemporaryFolder folder(testing::memory_folder());
  const auto path = folder.path() / "mapped.index";
  const SoftmaxLayer layer = random_layer(60, 6, 1);
  std::vector<TokenId> token_of_row(60);
  for (std::size_t row = 0; row < 60; ++row) token_of_row[row] = static_cast<TokenId>(2 * row);
  const auto mapped = MappedVocabulary::wrap(standard().build("fused", {.layer = layer}), token_of_row, 120);
  save_index(*mapped, path);
  const auto loaded = load_index(path, layer, standard());
  EXPECT_EQ(loaded->name(), "mapped:fused");
  const Eigen::VectorXf h = testing::random_vector(6, 2);
  EXPECT_EQ(loaded->query(h, {.k = 5}).ids, mapped->query(h, {.k = 5}).ids);
}

TEST(StandardRegistry, EveryBackendKnowsTheSettingsThatItSuitsItselfBy) {
  for (const BackendDescription* const description : standard().all()) {
    for (const std::size_t k : {1U, 50U}) {
      EXPECT_NO_THROW(description->values(description->suited_to(k))) << description->name;
    }
  }
}

TEST(StandardRegistry, DescribesEveryBackendWhole) {
  for (const BackendDescription* const description : standard().all()) {
    SCOPED_TRACE(description->name);
    EXPECT_FALSE(description->summary.empty());
    std::set<std::string> names;
    for (const OptionDescription& option : description->options()) {
      EXPECT_TRUE(names.insert(option.name).second) << option.name;
      EXPECT_FALSE(option.help.empty()) << option.name;
      EXPECT_TRUE(option.optional || !option.default_value.empty()) << option.name;
    }
    std::size_t efforts = 0;
    for (const OptionAxis& axis : description->axes) {
      EXPECT_TRUE(names.contains(axis.option)) << axis.option;
      EXPECT_FALSE(axis.values(random_layer(50, 4, 1), 5).empty()) << axis.option;
      efforts += axis.effort ? 1U : 0U;
    }
    EXPECT_LE(efforts, 1U);
  }
}

TEST(StandardRegistry, BuildsTheSameIndexOnEveryExecutor) {
  const testing::TemporaryFolder folder(testing::memory_folder());
  const auto path = folder.path() / "some.index";
  const SoftmaxLayer layer = random_layer(2100, 24, 1);
  const RowMajorMatrix contexts = clustered_contexts(400, 24, 6, 2);
  for (const BackendDescription& description : standard().descriptions()) {
    SCOPED_TRACE(description.name);
    if (!description.traits.has_index) continue;
    const auto index_on = [&](const Executor& executor) {
      const auto built = standard().build(
          description.name, {.layer = layer, .contexts = Contexts::of(contexts), .executor = executor}, {});
      save_index(*built, path);
      return testing::read_bytes(path);
    };
    EXPECT_EQ(index_on(SerialExecutor()), index_on(testing::ReversedExecutor()));
  }
}

TEST(StandardRegistry, IsWhatTheConformanceSuiteTries) {
  std::set<std::string> tried;
  for (const testing::Backend& backend : testing::all_backends()) tried.insert(backend.description.name);
  for (const BackendDescription& description : standard().descriptions()) {
    if (description.name == "certify:l2s") continue;  // certify:shortlist stands for all that are wrapped
    EXPECT_TRUE(tried.contains(description.name)) << description.name;
  }
}

TEST(StandardRegistry, SaysWhatItsBackendsDo) {
  const SoftmaxLayer layer = random_layer(60, 6, 1);
  const RowMajorMatrix contexts = clustered_contexts(80, 6, 3, 2);
  for (const BackendDescription& description : standard().descriptions()) {
    SCOPED_TRACE(description.name);
    const auto built = description.build({.layer = layer, .contexts = Contexts::of(contexts)});
    EXPECT_EQ(built->name(), description.name == "certify:l2s" ? "certify:l2s-kmeans" : description.name);
    EXPECT_EQ(built->certifies(), description.traits.exact);
    EXPECT_EQ(built->exhaustive(), description.traits.scans_all);
    const auto without = [&] { description.build({.layer = layer}); };
    EXPECT_EQ(!testing::error_of(without).empty(), description.traits.needs_contexts);
  }
}

/// A call that a description writes, and what it was to do.
struct Call {
  BackendDescription backend;
  Settings settings;
  bool counts;

  std::string code() const { return backend.code(settings, counts); }
};

/// Every backend with its defaults, and with every option named and counts given.
std::vector<Call> calls() {
  std::vector<Call> all;
  std::vector<std::string> names;
  for (const BackendDescription& description : standard().descriptions()) names.push_back(description.name);
  names.emplace_back("certify:shortlist");
  for (const std::string& name : names) {
    const BackendDescription backend = standard().find(name);
    all.push_back({backend, {}, false});
    Settings every = backend.values();
    for (auto& [option, value] : every) {
      if (value.empty()) value = "3";  // what the backend would choose
    }
    if (!every.empty() || backend.builder.takes_counts) all.push_back({backend, every, true});
  }
  return all;
}

std::string as_program() {
  std::set<std::string> headers;
  std::string body;
  for (const Call& call : calls()) {
    headers.insert(call.backend.builder.headers.begin(), call.backend.builder.headers.end());
    body += "  all.push_back(" + call.code() + ");\n";
  }
  std::string text =
      "// SPDX-License-Identifier: Apache-2.0\n//\n"
      "// Written by standard_registry_test.cpp: the calls that the descriptions write.\n"
      "// clang-format off\n#include \"registry/written_code.hpp\"\n\n";
  for (const std::string& header : headers) text += "#include \"" + header + "\"\n";
  return text +
         "\nnamespace topksoftmax::testing {\n\n"
         "std::vector<std::shared_ptr<const TopKSoftmax>> make_as_written(\n"
         "    const SoftmaxLayer& layer, const RowMajorMatrix& contexts, const std::vector<std::int64_t>& "
         "counts) {\n"
         "  std::vector<std::shared_ptr<const TopKSoftmax>> all;\n" +
         body + "  return all;\n}\n\n}  // namespace topksoftmax::testing\n";
}

/// Compares a file, or what it is to have between two lines, with what it must be, and says how to take over.
void expect_written(const std::string& path, const std::string& wanted, const std::string& name) {
  const std::string written = ::testing::TempDir() + name;
  const bool same = testing::read_bytes(path) == wanted;
  if (!same) std::ofstream(written, std::ios::binary) << wanted;
  EXPECT_TRUE(same) << path << " is not what the descriptions say. Take it over:\n  cp " << written << " "
                    << path;
}

TEST(WrittenCode, IsWhatTheDescriptionsWrite) {
  expect_written(TOPKSOFTMAX_WRITTEN_CODE, as_program(), "written_code.cpp");
}

TEST(WrittenCode, MakesWhatTheDescriptionsBuild) {
  const SoftmaxLayer layer = random_layer(60, 6, 1);
  const RowMajorMatrix contexts = clustered_contexts(80, 6, 3, 2);
  std::vector<std::int64_t> counts(60);
  std::iota(counts.begin(), counts.end(), 0);
  const auto made = testing::make_as_written(layer, contexts, counts);
  const std::vector<Call> wanted = calls();
  ASSERT_EQ(made.size(), wanted.size());
  for (std::size_t i = 0; i < made.size(); ++i) {
    SCOPED_TRACE(wanted[i].code());
    BuildMaterial material = {.layer = layer, .contexts = Contexts::of(contexts)};
    if (wanted[i].counts) material.counts = counts;
    const auto built = wanted[i].backend.build(material, wanted[i].settings);
    EXPECT_EQ(made[i]->name(), built->name());
    EXPECT_EQ(made[i]->index_bytes(), built->index_bytes());
    for (Eigen::Index c = 0; c < 5; ++c)
      EXPECT_EQ(made[i]->query(contexts.row(c), {.k = 5}).ids, built->query(contexts.row(c), {.k = 5}).ids);
  }
}

TEST(WhichHead, IsTabulatedInTheReadme) {
  const std::string begin = "<!-- which head, as the descriptions have it -->\n";
  const std::string end = "<!-- end of which head -->\n";
  const std::string readme = testing::read_bytes(TOPKSOFTMAX_README);
  const std::size_t first = readme.find(begin);
  const std::size_t last = readme.find(end);
  ASSERT_TRUE(first != std::string::npos && last != std::string::npos) << "the README has lost its markers";
  expect_written(TOPKSOFTMAX_README,
                 readme.substr(0, first + begin.size()) + which_head_table(standard()) + readme.substr(last),
                 "README-with-which-head.md");
}

}  // namespace
}  // namespace topksoftmax
