// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/distributed/description.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "distributed/ranks.hpp"
#include "support/layers.hpp"
#include "topksoftmax/registry/standard.hpp"

namespace topksoftmax {
namespace {

TEST(ShardedDescription, BuildsOverSlicesWhatItIsMadeOf) {
  const Registry standard = Registry::standard();
  Registry registry;
  registry.add(describe_sharded(MPI_COMM_WORLD, standard.find("adaptive")));
  const SoftmaxLayer layer = testing::random_layer(300, 16, 2);
  std::vector<std::int64_t> counts(300);
  for (std::size_t id = 0; id < counts.size(); ++id) counts[id] = static_cast<std::int64_t>((id * 37) % 300);
  const auto head = registry.build("sharded:adaptive", {.layer = layer, .counts = counts}, {});
  EXPECT_EQ(head->name(), "sharded:adaptive");
  EXPECT_EQ(head->vocab(), 300U);
  const Eigen::VectorXf h = testing::random_vector(16, 3);
  EXPECT_EQ(head->query(h, {.k = 4}).size(), 4U);
  EXPECT_FALSE(registry.find("sharded:adaptive").traits.has_index);
  EXPECT_EQ(registry.find("sharded:adaptive").options().size(), standard.find("adaptive").options().size());
}

}  // namespace
}  // namespace topksoftmax
