// SPDX-License-Identifier: Apache-2.0
#include "harness/backends/choice.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/command_line/usage_error.hpp"
#include "topksoftmax/registry/standard.hpp"

namespace topksoftmax::bench {
namespace {

const Registry& registry() {
  static const Registry standard = Registry::standard();
  return standard;
}

TEST(Choice, TakesBackendsInTheOrderAskedForAndEachOnce) {
  const std::vector<Choice> chosen = choose_backends(registry(), "l2s,exact,l2s", {});
  ASSERT_EQ(chosen.size(), 2U);
  EXPECT_EQ(chosen[0].backend->name, "l2s");
  EXPECT_EQ(chosen[1].backend->name, "exact");
  EXPECT_EQ(choose_backends(registry(), " l2s , exact", {})[1].backend->name, "exact");
  EXPECT_THROW(choose_backends(registry(), " , ", {}), UsageError);
  EXPECT_EQ(choose_backends(registry(), "all", {}).size(), registry().descriptions().size());
  EXPECT_EQ(choose_backends(registry(), "fused,all", {})[0].backend->name, "fused");
}

TEST(Choice, TakesWhatTheRegistryWraps) {
  EXPECT_EQ(choose_backends(registry(), "certify:svd", {})[0].backend->name, "certify:svd");
  EXPECT_THROW(choose_backends(registry(), "certify:", {}), UsageError);
  EXPECT_THROW(choose_backends(registry(), "nonesuch", {}), UsageError);
}

TEST(Choice, SaysWhichBackendMayHaveBeenMeant) {
  const auto told = [](const char* name) -> std::string {
    try {
      find_backend(registry(), name);
    } catch (const UsageError& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(told("certifed"), "there is no backend \"certifed\"; did you mean certified?");
  EXPECT_EQ(told("l2s-kmean"), "there is no backend \"l2s-kmean\"; did you mean l2s-kmeans?");
  EXPECT_TRUE(told("nonesuch").starts_with("there is no backend \"nonesuch\"; there are exact, "));
  EXPECT_EQ(told("certify:foo"),
            "there is no backend \"certify:foo\"; certify:NAME takes any other that list shows");
  EXPECT_EQ(told("certify:quantised"),
            "there is no backend \"certify:quantised\"; certify:NAME takes any other that list shows; did "
            "you mean quantized?");
  EXPECT_EQ(told("certify"), "there is no backend \"certify\"; certify:NAME takes any other that list shows");
}

TEST(Choice, KnowsWhichBackendsHaveNoEffort) {
  for (const char* name : {"exact", "fused", "certified", "mapped:certified"}) {
    EXPECT_THROW(check_effort(registry(), name), UsageError) << name;
  }
  for (const char* name : {"l2s", "svd", "adaptive", "certify:l2s", "mapped:fgd", "of one's own"}) {
    EXPECT_NO_THROW(check_effort(registry(), name)) << name;
  }
}

TEST(Choice, RefusesSettingsOfWhatWasNotChosen) {
  const std::vector<std::string> settings = {"fgd.M=8", "certify:svd.preview_width=8"};
  EXPECT_NO_THROW(check_all_chosen(choose_backends(registry(), "certify:svd,fgd", settings), settings));
  EXPECT_THROW(check_all_chosen(choose_backends(registry(), "all", settings), settings), UsageError);
  EXPECT_THROW(check_all_chosen(choose_backends(registry(), "certify:svd", settings), settings), UsageError);
}

TEST(Choice, GivesSettingsToTheirBackend) {
  const std::vector<std::string> settings = {"l2s.clusters=7", "l2s.budget=2.5", "l2s-kmeans.clusters=9"};
  const std::vector<Choice> chosen = choose_backends(registry(), "exact,l2s", settings);
  EXPECT_TRUE(chosen[0].settings.empty());
  const nlohmann::json values = values_of(*chosen[1].backend, chosen[1].settings);
  EXPECT_EQ(values.at("clusters"), 7);
  EXPECT_EQ(values.at("budget"), 2.5);
}

TEST(Choice, TakesOneWithItsSettingsAlone) {
  const std::vector<std::string> settings = {"l2s.clusters=7", "l2s.budget=2.5"};
  const Choice chosen = choose_backend(registry(), "l2s", settings);
  EXPECT_EQ(chosen.backend->name, "l2s");
  EXPECT_EQ(chosen.settings.size(), 2U);
  EXPECT_THROW(choose_backend(registry(), "svd", settings), UsageError);
  EXPECT_THROW(choose_backend(registry(), "svd,l2s", {}), UsageError);
}

TEST(Choice, IsBuiltForTheKThatIsAskedForUnlessItSaysOtherwise) {
  const std::vector<std::string> settings = {"certified.expected_k=7", "certified.box_width=8"};
  const auto suited = [](const char* name, std::span<const std::string> with, std::size_t k) {
    return suited_to(k, choose_backends(registry(), name, with)[0]).settings;
  };
  EXPECT_EQ(suited("certified", {}, 50), Settings({{"expected_k", "50"}}));
  EXPECT_EQ(suited("certified", settings, 50), Settings({{"box_width", "8"}, {"expected_k", "7"}}));
  EXPECT_EQ(suited("certify:l2s", {}, 50).at("expected_k"), "50");
  EXPECT_EQ(suited("l2s", {}, 50), Settings({{"label_count", "50"}, {"label_depth", "150"}}));
  EXPECT_TRUE(suited("l2s", {}, 5).empty());
  EXPECT_TRUE(suited("fused", {}, 50).empty());
}

TEST(Choice, RefusesSettingsThatNoBackendHas) {
  for (const char* setting : {"l2s", "l2s.clusters", "l2s.nonesuch=1", "l2s.clusters=many", "nonesuch.k=1"}) {
    const std::vector<std::string> settings = {setting};
    EXPECT_THROW(choose_backends(registry(), "exact", settings), UsageError) << setting;
  }
  const std::vector<std::string> twice = {"fgd.M=8", "l2s.clusters=4", "fgd.M=8"};
  EXPECT_THROW(choose_backends(registry(), "fgd", twice), UsageError);
}

TEST(Choice, HasValuesOfEveryTypeAsJson) {
  EXPECT_EQ(values_of(registry().find("svd"), {}).at("refine_width"), nullptr);
  const nlohmann::json values = values_of(registry().find("certified"), {{"boxes", "never"}});
  EXPECT_EQ(values.at("boxes"), "never");
  EXPECT_EQ(values.at("width"), 0U);
}

}  // namespace
}  // namespace topksoftmax::bench
