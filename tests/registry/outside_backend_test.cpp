// SPDX-License-Identifier: Apache-2.0
//
// A backend that the library does not know: certified, saved so, and tuned.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "own_backend/mine.hpp"
#include "support/errors.hpp"
#include "support/layers.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/description.hpp"
#include "topksoftmax/evaluation/tune.hpp"
#include "topksoftmax/io/index_file.hpp"
#include "topksoftmax/registry/exhaustive_descriptions.hpp"
#include "topksoftmax/registry/registry.hpp"
#include "topksoftmax/registry/standard_loader.hpp"

namespace topksoftmax {
namespace {

using own_backend::Mine;
using testing::clustered_contexts;
using testing::error_of;
using testing::random_layer;

Registry own_registry() {
  Registry registry;
  registry.add(describe_fused()).add(describe_certify()).add<Mine>();
  return registry;
}

TEST(OutsideBackend, IsCertified) {
  const testing::TemporaryFolder folder(testing::memory_folder());
  const SoftmaxLayer layer = random_layer(300, 8, 1);
  const RowMajorMatrix contexts = clustered_contexts(100, 8, 3, 2);
  const Registry registry = own_registry();
  const auto certified = registry.build("certify:mine", {.layer = layer, .contexts = Contexts::of(contexts)},
                                        {{"kept", "20"}, {"width", "8"}});
  EXPECT_EQ(certified->name(), "certify:mine");
  save_index(*certified, folder.path() / "index");
  const auto loaded = load_index(folder.path() / "index", layer, registry);
  const auto fused = Fused::make(layer);
  for (Eigen::Index i = 0; i < 20; ++i) {
    const TopK right = fused->query(contexts.row(i), {.k = 5});
    for (const TopKSoftmax* head : {certified.get(), loaded.get()}) {
      const TopK answer = head->query(contexts.row(i), {.k = 5});
      EXPECT_EQ(answer.ids, right.ids);
      EXPECT_TRUE(answer.certified);
    }
  }
  EXPECT_EQ(registry.find("certify:mine").code({{"kept", "20"}, {"boxes", "always"}}),
            "Certify::wrap(Mine::build(layer, contexts, {.kept = 20}), contexts, {.boxes = "
            "BoundBoxes::always})");
}

TEST(OutsideBackend, IsTuned) {
  const SoftmaxLayer layer = random_layer(300, 8, 1);
  const RowMajorMatrix contexts = clustered_contexts(200, 8, 3, 2);
  TuneOptions options;
  options.target = {.k = 3, .precision = 0.2};
  const TuneResult result = tune(layer, contexts, options, own_registry());
  ASSERT_GE(result.rows.size(), 2U);
  EXPECT_EQ(result.rows[0].backend, "fused");
  const auto mine = std::find_if(result.rows.begin(), result.rows.end(),
                                 [](const TuneRow& row) { return row.backend == "mine"; });
  ASSERT_NE(mine, result.rows.end());
  EXPECT_EQ(mine->code, "Mine::build(layer, contexts)");
  EXPECT_EQ(mine->settings, "kept=" + std::to_string(mine->effort));
  EXPECT_FALSE(mine->exact);
}

TEST(OutsideBackend, NeedsAnExactOneBesideItToBeTuned) {
  Registry registry;
  registry.add<Mine>();
  const RowMajorMatrix contexts = clustered_contexts(20, 8, 3, 2);
  EXPECT_EQ(error_of([&] { tune(random_layer(300, 8, 1), contexts, {}, registry); }),
            "tune: the registry plans no exact backend to be always tried, first of all; add one: fused");
}

}  // namespace
}  // namespace topksoftmax
