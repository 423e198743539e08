// SPDX-License-Identifier: Apache-2.0
#include "harness/registry.hpp"

#include <gtest/gtest.h>

#include <set>

#include "harness/usage_error.hpp"

namespace topksoftmax::bench {
namespace {

TEST(Registry, NamesEachBackendOnceAndKnowsItsParameters) {
  std::set<std::string> names;
  for (const Backend& backend : backends()) {
    EXPECT_TRUE(names.insert(backend.name).second) << backend.name;
    EXPECT_FALSE(backend.summary.empty());
    EXPECT_EQ(&find_backend(backend.name), &backend);
    const nlohmann::json values = backend.values({});
    std::set<std::string> parameters;
    for (const Parameter& parameter : backend.parameters) {
      EXPECT_TRUE(parameters.insert(parameter.name).second) << backend.name << "." << parameter.name;
      EXPECT_FALSE(parameter.help.empty());
      EXPECT_EQ(values.at(parameter.name), parameter.default_value);
    }
    for (const SweepAxis& axis : backend.sweep) EXPECT_TRUE(parameters.contains(axis.parameter));
  }
}

TEST(Registry, ChoosesInTheOrderAskedForAndEachOnce) {
  const std::vector<Choice> chosen = choose_backends("l2s,exact,l2s", {});
  ASSERT_EQ(chosen.size(), 2U);
  EXPECT_EQ(chosen[0].backend->name, "l2s");
  EXPECT_EQ(chosen[1].backend->name, "exact");
  EXPECT_EQ(choose_backends("all", {}).size(), backends().size());
  EXPECT_EQ(choose_backends("fused,all", {})[0].backend->name, "fused");
}

TEST(Registry, GivesSettingsToTheirBackend) {
  const std::vector<std::string> settings = {"l2s.clusters=7", "l2s.budget=2.5", "l2s-kmeans.clusters=9"};
  const std::vector<Choice> chosen = choose_backends("exact,l2s", settings);
  EXPECT_TRUE(chosen[0].settings.empty());
  const nlohmann::json values = chosen[1].backend->values(chosen[1].settings);
  EXPECT_EQ(values.at("clusters"), 7);
  EXPECT_EQ(values.at("budget"), 2.5);
}

TEST(Registry, ChoosesOneWithItsSettingsAlone) {
  const std::vector<std::string> settings = {"l2s.clusters=7", "l2s.budget=2.5"};
  const Choice chosen = choose_backend("l2s", settings);
  EXPECT_EQ(chosen.backend->name, "l2s");
  EXPECT_EQ(chosen.settings.size(), 2U);
  EXPECT_THROW(choose_backend("svd", settings), UsageError);
  EXPECT_THROW(choose_backend("svd,l2s", {}), UsageError);
}

TEST(Registry, ReadsValuesOfEveryType) {
  EXPECT_EQ(parse_value<std::size_t>("12"), 12U);
  EXPECT_EQ(parse_value<int>("-3"), -3);
  EXPECT_EQ(parse_value<double>("3e-4"), 3e-4);
  EXPECT_TRUE(parse_value<bool>("true"));
  EXPECT_EQ(parse_value<std::string>("a=b"), "a=b");
  for (const char* wrong : {"", "1.5", "-1", "12x", "0x10", " 1"}) {
    EXPECT_THROW(parse_value<std::size_t>(wrong), UsageError) << wrong;
  }
  EXPECT_THROW(parse_value<double>("fast"), UsageError);
  EXPECT_THROW(parse_value<bool>("yes"), UsageError);
}

}  // namespace
}  // namespace topksoftmax::bench
