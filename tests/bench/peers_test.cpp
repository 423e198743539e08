// SPDX-License-Identifier: Apache-2.0
#include "peers/peers.hpp"

#include <gtest/gtest.h>

#include "harness/registry.hpp"
#include "support/layers.hpp"
#include "topksoftmax/exact.hpp"

namespace topksoftmax {
namespace {

using testing::random_layer;
using testing::random_matrix;

bench::Head make_head(SoftmaxLayer layer) {
  const auto dim = static_cast<Eigen::Index>(layer.dim());
  return {.file = "",
          .name = "",
          .layer = std::move(layer),
          .train = random_matrix(100, dim, 8),
          .test = random_matrix(20, dim, 9),
          .counts = {}};
}

/// The peers that score every token: they give the exact answers, up to the rounding of logits.
std::vector<const bench::Backend*> full_softmax_peers() {
  std::vector<const bench::Backend*> peers;
  for (const bench::Backend& backend : bench::backends()) {
    if (backend.is_exact_fp32 && backend.name.starts_with("peer:")) peers.push_back(&backend);
  }
  return peers;
}

void expect_exact(const SoftmaxLayer& layer, const QueryOptions& options) {
  const bench::Head head = make_head(layer);
  const std::vector<TopK> wanted = Exact::make(layer)->query_batch(head.test, options);
  for (const bench::Backend* backend : full_softmax_peers()) {
    SCOPED_TRACE(backend->name);
    const auto peer = backend->build(head, {}, {});
    EXPECT_EQ(peer->name(), backend->name);
    const std::vector<TopK> batched = peer->query_batch(head.test, options);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const TopK single = peer->query(head.test.row(static_cast<Eigen::Index>(i)), options);
      for (const TopK& answer : {single, batched[i]}) {
        EXPECT_EQ(answer.ids, wanted[i].ids);
        EXPECT_NEAR(answer.log_z, wanted[i].log_z, 1e-4);
        for (std::size_t j = 0; j < answer.size(); ++j)
          EXPECT_NEAR(answer.logits[j], wanted[i].logits[j], 1e-4F);
      }
    }
  }
}

TEST(Peers, EigenIsAlwaysThere) {
  EXPECT_GE(full_softmax_peers().size(), 1U);
}

TEST(Peers, GiveTheExactAnswers) {
  for (const Eigen::Index vocab : {1, 7, 1000}) {
    expect_exact(random_layer(vocab, 24, 1), {.k = 5});
    expect_exact(SoftmaxLayer::own(random_matrix(vocab, 24, 2)), {.k = 5});
  }
}

TEST(Peers, TakeMasksAndBiases) {
  TokenMask mask(1000);
  for (TokenId id = 0; id < 1000; id += 2) mask.allow(id);
  const std::vector<TokenBias> biases = {{4, 3.0F}, {5, 9.0F}, {600, -1.0F}};
  expect_exact(random_layer(1000, 24, 1), {.k = 10, .allowed = mask, .logit_bias = biases});
}

}  // namespace
}  // namespace topksoftmax
