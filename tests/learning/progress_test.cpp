// SPDX-License-Identifier: Apache-2.0
//
// What every backend that takes long to build tells of its progress, and that it can be given up.
#include "topksoftmax/learning/progress.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "support/saved_index.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/registry/standard.hpp"

namespace topksoftmax {
namespace {

using testing::saved;
using testing::world;

TEST(Progress, APartIsToldAsAWhole) {
  std::vector<double> told;
  const TrainingProgress whole = [&told](std::string_view step, double done) {
    EXPECT_EQ(step, "a step");
    told.push_back(done);
  };
  detail::part_of(whole, 0.5, 0.75)("a step", 0.5);
  const StepProgress step = detail::step_of(detail::part_of(whole, 0.0, 0.5), "a step", 0.5, 1.0);
  step(0.5);
  step(1.0);
  EXPECT_EQ(told, (std::vector<double>{0.625, 0.25, 0.375, 0.5}));
  EXPECT_FALSE(detail::part_of({}, 0.0, 1.0));
  EXPECT_FALSE(detail::step_of({}, "a step", 0.0, 1.0));
}

TEST(Progress, AShareIsToldAsAStep) {
  std::vector<double> told;
  const StepProgress whole = [&told](double done) { told.push_back(done); };
  const StepProgress share = detail::share_of(whole, 0.5, 0.75);
  share(0.0);
  share(0.5);
  share(1.0);
  EXPECT_EQ(told, (std::vector<double>{0.5, 0.625, 0.75}));
  EXPECT_FALSE(detail::share_of({}, 0.0, 1.0));
}

TEST(Progress, NobodyMayBeTold) {
  std::vector<double> told;
  detail::tell([&told](std::string_view, double done) { told.push_back(done); }, "a step", 0.5);
  detail::tell({}, "a step", 1.0);
  EXPECT_EQ(told, std::vector<double>{0.5});
}

class BuildProgress : public ::testing::TestWithParam<std::string> {
 protected:
  std::shared_ptr<const TopKSoftmax> build(const TrainingProgress& progress,
                                           const Settings& settings = {}) const {
    static const Registry registry = Registry::standard();
    return registry.find(GetParam())
        .build({.layer = world().layer, .contexts = Contexts::of(world().train), .progress = progress},
               settings);
  }
};

TEST_P(BuildProgress, RisesFromNothingToTheWhole) {
  std::vector<double> told;
  const auto caller = std::make_shared<int>();
  const auto backend = build([&told, caller](std::string_view step, double done) {
    EXPECT_FALSE(step.empty());
    told.push_back(done);
  });
  ASSERT_GE(told.size(), GetParam() == "quantized" ? 2U : 3U);  // few rows are rounded at once
  EXPECT_EQ(told.front(), 0.0);
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_DOUBLE_EQ(told.back(), 1.0);
  EXPECT_EQ(caller.use_count(), 1) << "nobody is told when all is built";
  EXPECT_EQ(saved(*backend), saved(*build({}))) << "whoever listens";
}

TEST_P(BuildProgress, RisesToTheWholeWhereNoMassIsLearned) {
  if (GetParam() == "svd" || GetParam() == "quantized" || GetParam() == "certify:l2s") {
    GTEST_SKIP() << "it has no such option";
  }
  double last = 0.0;
  build(
      [&last](std::string_view, double done) {
        EXPECT_GE(done, last);
        last = done;
      },
      {{"outside_sample", "0"}});
  EXPECT_DOUBLE_EQ(last, 1.0);
}

TEST_P(BuildProgress, MayGiveTheBuildUpAtAnyTime) {
  std::size_t reports = 0;
  build([&reports](std::string_view, double) { ++reports; });
  for (const std::size_t last : {std::size_t{1}, reports / 2, reports}) {
    std::size_t count = 0;
    const auto caller = std::make_shared<int>();
    const TrainingProgress progress = [&count, last, caller](std::string_view, double) {
      if (++count == last) throw std::domain_error("enough");
    };
    EXPECT_THROW(build(progress), std::domain_error);
    EXPECT_EQ(count, last) << "nothing is told after that";
    EXPECT_EQ(caller.use_count(), 2) << "here and in progress";
  }
}

// All rows are projected for it, and for a large layer that takes long.
TEST(Progress, CertifiedTellsOfTheOrderingOfItsRows) {
  std::vector<double> told;
  const TrainingProgress progress = [&told](std::string_view step, double done) {
    if (step == "ordering the rows") told.push_back(done);
  };
  Registry::standard()
      .find("certified")
      .build({.layer = world().layer, .contexts = Contexts::of(world().train), .progress = progress},
             {{"boxes", "always"}});
  EXPECT_GE(told.size(), 5U) << "its beginning, the rows that are placed, every halving";
  EXPECT_EQ(std::adjacent_find(told.begin(), told.end(), std::greater_equal<>()), told.end());
}

INSTANTIATE_TEST_SUITE_P(Backends, BuildProgress,
                         ::testing::Values("adaptive", "certified", "certify:l2s", "fgd", "greedy-mips",
                                           "l2s", "l2s-kmeans", "lsh-mips", "pca-mips", "quantized",
                                           "row-clusters", "shortlist", "svd", "wta-lsh", "wta-lsh-each"),
                         [](const auto& name) {
                           std::string id = name.param;
                           std::replace_if(
                               id.begin(), id.end(), [](char c) { return c == '-' || c == ':'; }, '_');
                           return id;
                         });

}  // namespace
}  // namespace topksoftmax
