// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/context_regions.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "support/layers.hpp"
#include "support/saved_index.hpp"
#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/certified/index.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/thread_pool.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/registry/standard_loader.hpp"
#include "topksoftmax/workspace.hpp"

namespace topksoftmax {
namespace {

using detail::ContextRegions;
using ::testing::HasSubstr;
using testing::Parts;

TEST(ContextRegions, AreThoseOfTheLargestProduct) {
  RowMajorMatrix centres(3, 2);
  centres << 1, 0, 0, 1, -1, 0;
  const ContextRegions regions(centres);
  EXPECT_EQ(regions.count(), 3U);
  EXPECT_EQ(regions.bytes(), 3U * 2 * sizeof(float));
  const std::vector<std::vector<float>> contexts = {{5, 1}, {1, 5}, {-5, 1}, {2, 2}, {0, 0}};
  const std::vector<std::size_t> expected = {0, 1, 2, 0, 0};  // of equals the first
  for (std::size_t i = 0; i < contexts.size(); ++i) EXPECT_EQ(regions.of(contexts[i].data()), expected[i]);
}

TEST(ContextRegions, AreOneWithoutCentres) {
  const ContextRegions regions;
  EXPECT_EQ(regions.count(), 1U);
  EXPECT_EQ(regions.bytes(), 0U);
  const float context = 1.0F;
  EXPECT_EQ(regions.of(&context), 0U);
}

/// Contexts enough for three regions, though some are not bounded, of six kinds.
struct Learned {
  static constexpr Eigen::Index kKinds = 6;

  SoftmaxLayer layer = testing::random_layer(700, 24, 3);
  RowMajorMatrix contexts = testing::clustered_contexts(3300, 24, kKinds, 9);

  std::unique_ptr<Certified> build(const Executor& executor) const {
    return Certified::build(layer, contexts, {.prefix = 8, .width = 16}, executor);
  }
};

TEST(ContextRegions, AreLearnedFromAThousandContextsEach) {
  const Learned world;
  const auto head = world.build(SerialExecutor());
  const detail::CertifiedIndex& index = head->screener().index();
  ASSERT_EQ(index.outside.regions.count(), 3U);
  ASSERT_TRUE(index.outside.models);
  EXPECT_EQ(index.outside.models->groups(), 3 * detail::kOutsideModels);

  Workspace workspace;
  std::map<Eigen::Index, std::map<std::size_t, int>> regions_of_kind;
  std::set<std::size_t> used;
  for (Eigen::Index i = 0; i < world.contexts.rows(); ++i) {
    Query query;
    query.h = world.contexts.row(i).data();
    const std::size_t region = index.outside.regions.of(detail::bound(index, query, workspace).coordinates);
    ++regions_of_kind[i % Learned::kKinds][region];
    used.insert(region);
  }
  EXPECT_EQ(used.size(), 3U);
  for (const auto& [kind, regions] : regions_of_kind) {
    const auto most = std::max_element(regions.begin(), regions.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    EXPECT_GE(most->second, 523) << "of 550 contexts of kind " << kind;
  }
}

TEST(ContextRegions, AreTheSameForEveryNumberOfThreads) {
  const Learned world;
  EXPECT_EQ(testing::saved(*world.build(SerialExecutor())), testing::saved(*world.build(ThreadPool(3))));
}

TEST(ContextRegions, AreRefusedWhereTheyAreDamaged) {
  const Learned world;
  const std::string whole = testing::saved(*world.build(SerialExecutor()));
  const auto refused_as = [&](const auto& damage) {
    Parts parts(whole);
    damage(parts);
    return testing::refusal(parts.file(), world.layer, standard_loader());
  };
  EXPECT_EQ(refused_as([](Parts& /*parts*/) {}), "");
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(refused_as([](Parts& parts) { parts.set("outside.regions", 5, kNan); }), HasSubstr("NaN"));
  for (const std::size_t columns : {0U, 1U}) {
    EXPECT_THAT(refused_as([columns](Parts& parts) {
                  std::vector<std::size_t>& shape = parts.tensors.at("outside.weights").shape;
                  shape[1] = columns;
                  parts.bytes.at("outside.weights").resize(shape[0] * columns * sizeof(float));
                }),
                HasSubstr(columns == 0 ? "is empty" : "has no column for each feature"));
  }
  EXPECT_THAT(refused_as([](Parts& parts) { parts.shorten("outside.regions"); }),
              HasSubstr("outside.weights"));
  EXPECT_THAT(refused_as([](Parts& parts) {
                parts.tensors.erase("outside.regions");
                parts.bytes.erase("outside.regions");
              }),
              HasSubstr("outside.weights"));
  EXPECT_THAT(refused_as([](Parts& parts) {
                std::string& bytes = parts.bytes.at("outside.regions");
                parts.tensors.at("outside.regions").shape[0] = 18;
                for (std::size_t i = 3; i < 18; ++i) bytes += bytes.substr(0, bytes.size() / i);
              }),
              HasSubstr("must have 1 to 16 rows"));
}

}  // namespace
}  // namespace topksoftmax
