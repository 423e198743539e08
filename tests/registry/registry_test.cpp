// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/registry/registry.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "own_backend/mine.hpp"
#include "support/errors.hpp"
#include "support/layers.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/io/index_file.hpp"
#include "topksoftmax/mapped_vocabulary.hpp"
#include "topksoftmax/registry/exhaustive_descriptions.hpp"
#include "topksoftmax/registry/standard_loader.hpp"
#include "topksoftmax/registry/tables.hpp"

namespace topksoftmax {
namespace {

using own_backend::Mine;
using own_backend::MineOptions;
using own_backend::MineOrder;
using testing::clustered_contexts;
using testing::error_of;
using testing::random_layer;

/// What wraps another and is no more than that other.
BackendDescription describe_around() {
  BackendDescription around = Mine::describe();
  around.name = around.kind = "around";
  around.wraps = true;
  around.builder = builder<MineOptions>({"around", "{wrapped}, layer", "around.hpp"},
                                        [](const BuildMaterial& from, const MineOptions& options) {
                                          EXPECT_EQ(from.wrapped->name(), "mine");
                                          return Mine::build(from.layer, from.contexts, options);
                                        });
  return around;
}

Registry small_registry() {
  Registry registry;
  registry.add(describe_fused()).add<Mine>();
  return registry;
}

TEST(Registry, HoldsWhatWasAdded) {
  const Registry registry = small_registry();
  ASSERT_EQ(registry.descriptions().size(), 2U);
  EXPECT_EQ(registry.descriptions()[1].name, "mine");
  EXPECT_EQ(registry.find("fused").kind, "fused");
  EXPECT_EQ(registry.kinds(), (std::vector<std::string>{"fused", "mine", "mapped"}));
  EXPECT_EQ(error_of([&] { registry.find("yours"); }),
            "there is no backend \"yours\"; there are fused, mine");
}

TEST(Registry, IsAValue) {
  Registry one = small_registry();
  const Registry other = one;
  BackendDescription twin = Mine::describe();
  twin.name = "twin";
  one.add(twin);
  EXPECT_EQ(one.descriptions().size(), 3U);
  EXPECT_EQ(other.descriptions().size(), 2U);
}

TEST(Registry, RefusesWhatItCouldNotUse) {
  const auto refusal = [](const auto& change) {
    BackendDescription description = Mine::describe();
    change(description);
    Registry registry = small_registry();
    return error_of([&] { registry.add(description); });
  };
  EXPECT_EQ(refusal([](BackendDescription&) {}), "registry: there is a backend \"mine\" already");
  for (const char* name : {"", "a,b", "a.b", "a=b", "a b"}) {
    EXPECT_NE(refusal([&](BackendDescription& one) { one.name = name; }).find("a name must have no"),
              std::string::npos)
        << name;
  }
  EXPECT_EQ(refusal([](BackendDescription& one) {
              one.name = "twin";
              one.builder = {};
            }),
            "registry: the backend \"twin\" has no builder");
  EXPECT_NE(refusal([](BackendDescription& one) {
              one.name = "twin";
              one.loader = nullptr;
            }).find("has no kind or no loader"),
            std::string::npos);
}

TEST(Registry, BuildsFromSettings) {
  const SoftmaxLayer layer = random_layer(300, 8, 1);
  const RowMajorMatrix contexts = clustered_contexts(50, 8, 3, 2);
  const Registry registry = small_registry();
  const BuildMaterial material = {.layer = layer, .contexts = Contexts::of(contexts)};
  const auto built = registry.build("mine", material, {{"kept", "30"}, {"order", "rising"}});
  const auto direct = Mine::build(layer, material.contexts, {.kept = 30, .order = MineOrder::rising});
  const Eigen::VectorXf h = contexts.row(0);
  EXPECT_EQ(built->query(h, {.k = 5}).ids, direct->query(h, {.k = 5}).ids);
  EXPECT_EQ(error_of([&] {
              registry.build("mine", material, {{"kept", "0"}});
            }),
            "mine: kept is 0; it must be at least 1");
  EXPECT_EQ(error_of([&] {
              registry.build("fused", material, {{"kept", "1"}});
            }),
            "backend fused has no parameter \"kept\"; it has none");
  EXPECT_EQ(registry.find("mine").values({{"kept", "30"}}),
            (Settings{{"kept", "30"}, {"order", "falling"}, {"reversed", "false"}}));
  EXPECT_EQ(registry.find("mine").code({{"kept", "30"}, {"order", "rising"}}),
            "Mine::build(layer, contexts, {.kept = 30, .order = MineOrder::rising})");
}

TEST(Registry, LoadsWhatItHasBuilt) {
  const testing::TemporaryFolder folder(testing::memory_folder());
  const auto path = folder.path() / "mine.index";
  const SoftmaxLayer layer = random_layer(300, 8, 1);
  const Registry registry = small_registry();
  const auto built =
      registry.build("mine", {.layer = layer}, {{"kept", "30"}, {"order", "rising"}, {"reversed", "true"}});
  save_index(*built, path);
  const auto loaded = load_index(path, layer, registry);
  const Eigen::VectorXf h = testing::random_vector(8, 3);
  EXPECT_EQ(loaded->query(h, {.k = 5}).ids, built->query(h, {.k = 5}).ids);
  EXPECT_EQ(loaded->name(), "mine");

  Registry other;
  other.add(describe_fused());
  const std::string refusal = error_of([&] { load_index(path, layer, other); });
  EXPECT_NE(refusal.find("of kind \"mine\", which this library does not know; it knows fused, mapped;"),
            std::string::npos)
      << refusal;
}

TEST(Registry, LoadsAMappedVocabularyOfWhatItHas) {
  const testing::TemporaryFolder folder(testing::memory_folder());
  const auto path = folder.path() / "mapped.index";
  const SoftmaxLayer layer = random_layer(3, 8, 1);
  save_index(*MappedVocabulary::wrap(Mine::build(layer, {}), {2, 5, 9}, 10), path);
  const auto loaded = load_index(path, layer, small_registry());
  EXPECT_EQ(loaded->name(), "mapped:mine");
  EXPECT_EQ(loaded->vocab(), 10U);

  Registry other;
  other.add(describe_fused());
  EXPECT_NE(error_of([&] { load_index(path, layer, other); }).find("of kind \"mine\", which"),
            std::string::npos);
}

TEST(Registry, WrapsAnyBackendOfAnyName) {
  Registry registry = small_registry();
  registry.add(describe_around());
  const BackendDescription both = registry.find("around:mine");
  EXPECT_EQ(both.name, "around:mine");
  EXPECT_EQ(both.kind, "around");
  std::vector<std::string> names;
  for (const OptionDescription& option : both.options()) names.push_back(option.name);
  EXPECT_EQ(names, (std::vector<std::string>{"kept", "order", "reversed", "around:kept", "around:order",
                                             "around:reversed"}));
  const Settings settings = {{"kept", "30"}, {"around:kept", "40"}};
  EXPECT_EQ(both.values(settings).at("kept"), "30");
  EXPECT_EQ(both.values(settings).at("around:kept"), "40");
  EXPECT_EQ(both.code(settings), "around(Mine::build(layer, contexts, {.kept = 30}), layer, {.kept = 40})");
  EXPECT_EQ(both.build({.layer = random_layer(100, 8, 1)}, settings)->name(), "mine");
  EXPECT_EQ(error_of([&] {
              both.values({{"depth", "1"}});
            }).find("backend around:mine has no parameter"),
            0U);
  for (const char* name : {"around", "around:", "around:yours", "around:around"})
    EXPECT_THROW(registry.find(name), Error) << name;
}

TEST(Registry, TakesAnAddedNameBeforeOneThatItWouldMake) {
  Registry registry = small_registry();
  registry.add(describe_around());
  registry.add(narrowed(registry.find("around:mine"), "around:mine", {"kept"}));
  ASSERT_EQ(registry.find("around:mine").options().size(), 1U);
  EXPECT_EQ(registry.find("around:mine").values(), (Settings{{"kept", "50"}}));
  EXPECT_THROW(registry.find("around:mine").values({{"order", "rising"}}), Error);
}

TEST(Tables, TellOfEveryKind) {
  const std::string tensors = index_tensor_table(small_registry());
  EXPECT_NE(tensors.find("| fused | | | | |\n| mine | | | | |\n"), std::string::npos) << tensors;
  const std::string heads = which_head_table(small_registry());
  EXPECT_NE(heads.find("| `Fused` | `fused` | exact"), std::string::npos) << heads;
  EXPECT_EQ(std::count(heads.begin(), heads.end(), '\n'), 3) << heads;
}

}  // namespace
}  // namespace topksoftmax
