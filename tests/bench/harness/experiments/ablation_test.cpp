// SPDX-License-Identifier: Apache-2.0
#include "harness/experiments/ablation.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "support/layers.hpp"
#include "topksoftmax/exact.hpp"

namespace topksoftmax {
namespace {

using testing::random_layer;
using testing::random_matrix;

TEST(Ablation, TheMostFrequentTokensKeepTheirLogits) {
  const bench::Head head = {.file = "file",
                            .name = "name",
                            .layer = random_layer(6, 8, 1).with({.scale = 0.5F, .soft_cap = 3.0F}),
                            .train = random_matrix(4, 8, 3),
                            .test = random_matrix(2, 8, 4),
                            .counts = {3, 9, 1, 3, 7, 2}};
  const bench::Head cut = bench::most_frequent_of(head, 3);
  const std::vector<TokenId> kept = {0, 1, 4};
  EXPECT_EQ(cut.counts, (std::vector<std::int64_t>{3, 9, 7}));
  ASSERT_EQ(cut.layer.vocab(), kept.size());
  const auto all = Exact::make(head.layer);
  const TopK answer = Exact::make(cut.layer)->query(head.test.row(0), {.k = 3});
  for (std::size_t i = 0; i < answer.size(); ++i) {
    const std::vector<TokenId> token = {kept[static_cast<std::size_t>(answer.ids[i])]};
    std::vector<float> logit(1);
    all->logits_of({head.test.row(0).data(), 8}, token, {}, Workspace(), logit);
    EXPECT_EQ(answer.logits[i], logit[0]);
  }
}

}  // namespace
}  // namespace topksoftmax
