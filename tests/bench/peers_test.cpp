// SPDX-License-Identifier: Apache-2.0
#include "peers/peers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>
#include <string_view>

#include "harness/backends/build_backend.hpp"
#include "support/errors.hpp"
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

const Registry& all_peers() {
  static const Registry registry = [] {
    Registry made;
    bench::add_peers(made);
    return made;
  }();
  return registry;
}

/// The peers that score every token: they give the exact answers, up to the rounding of logits.
std::vector<const BackendDescription*> full_softmax_peers() {
  std::vector<const BackendDescription*> peers;
  for (const BackendDescription& backend : all_peers().descriptions()) {
    if (backend.traits.scans_all) peers.push_back(&backend);
  }
  return peers;
}

/// A peer that the harness was perhaps built without.
const BackendDescription* peer_named(std::string_view name) {
  for (const BackendDescription& backend : all_peers().descriptions()) {
    if (backend.name == name) return &backend;
  }
  return nullptr;
}

double layer_logit(const SoftmaxLayer& layer, TokenId token, const Eigen::VectorXf& h) {
  return static_cast<double>(layer.weights().row(token).dot(h) + layer.biases()[token]);
}

void expect_exact(const SoftmaxLayer& layer, const QueryOptions& options) {
  const bench::Head head = make_head(layer);
  const std::vector<TopK> wanted = Exact::make(layer)->query_batch(head.test, options);
  for (const BackendDescription* backend : full_softmax_peers()) {
    SCOPED_TRACE(backend->name);
    const auto peer = backend->build(bench::material_of(head));
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

TEST(Peers, ReadWhateverTypeALayerIsStoredIn) {
  const SoftmaxLayer layer = random_layer(1000, 24, 1);
  const auto weights = layer.weights();
  const Eigen::VectorXf biases = layer.biases();
  using Bfloat16Matrix = Eigen::Matrix<Eigen::bfloat16, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Bfloat16Matrix halves = weights.cast<Eigen::bfloat16>();
  const SoftmaxLayer of_halves = SoftmaxLayer::borrow({.data = halves.data(),
                                                       .bias = biases.data(),
                                                       .count = 1000,
                                                       .dim = 24,
                                                       .stride = 24,
                                                       .type = WeightType::bfloat16},
                                                      1000);
  expect_exact(of_halves, {.k = 5});
  expect_exact(of_halves.with({.scale = 0.5F, .soft_cap = 30.0F}), {.k = 5});
  const bench::Head head = make_head(of_halves);
  for (const BackendDescription* backend : full_softmax_peers()) {
    const auto peer = backend->build(bench::material_of(head));
    const TopK answer = peer->query(head.test.row(0), {.k = 1});
    EXPECT_EQ(answer.work.bytes_read, 1000U * 25 * sizeof(float)) << backend->name;
    EXPECT_GE(peer->index_bytes(), 1000U * 24 * sizeof(float)) << backend->name;
  }
}

TEST(Peers, TellWhatTheyKeepBesideTheLayer) {
  const SoftmaxLayer layer = random_layer(1000, 24, 1);
  const bench::Head head = make_head(layer);
  for (const BackendDescription* backend : full_softmax_peers()) {
    const auto peer = backend->build(bench::material_of(head));
    const std::size_t at_first = peer->index_bytes();
    if (backend->name != "peer:onednn") {
      EXPECT_EQ(at_first, 0U) << backend->name;
      continue;
    }
    EXPECT_GE(at_first, layer.bytes());  // its own copy, and maybe one in the layout that it likes
    peer->query_batch(head.test, {.k = 1}, SerialExecutor());
    EXPECT_GE(peer->index_bytes(), at_first);
  }
}

TEST(Peers, TellTheirWorkWhereItIsKnown) {
  const SoftmaxLayer layer = random_layer(1000, 24, 1);
  const bench::Head head = make_head(layer);
  const std::map<std::string_view, QueryWork> known = {
      {"peer:hnswlib", {}},
      {"peer:faiss-flat", {.bytes_read = 1000 * 25 * sizeof(float), .candidates = 1000}},
      {"peer:faiss-sq8", {.bytes_read = 1000 * 25, .screened = 1000}}};
  for (const auto& [name, work] : known) {
    const BackendDescription* const backend = peer_named(name);
    if (backend == nullptr) continue;  // built without it
    const TopK answer = backend->build(bench::material_of(head))->query(head.test.row(0), {.k = 5});
    EXPECT_EQ(answer.work.bytes_read, work.bytes_read) << name;
    EXPECT_EQ(answer.work.screened, work.screened) << name;
    EXPECT_EQ(answer.work.candidates, work.candidates) << name;
  }
}

TEST(Peers, TakeScalesAndSoftCaps) {
  expect_exact(random_layer(1000, 24, 1).with({.scale = 0.5F, .soft_cap = 3.0F}), {.k = 5});
  const bench::Head head = make_head(random_layer(1000, 24, 1).with({.scale = 0.5F, .soft_cap = 3.0F}));
  const auto exact = Exact::make(head.layer);
  const BackendDescription* const graph = peer_named("peer:hnswlib");
  if (graph == nullptr) GTEST_SKIP() << "built without hnswlib's peer";
  const auto peer = graph->build(bench::material_of(head));
  for (const auto& h : head.test.rowwise()) {
    const TopK answer = peer->query(h, {.k = 1});
    std::vector<float> logit(1);
    exact->logits_of({h.data(), 24}, answer.ids, {}, Workspace(), logit);
    EXPECT_NEAR(answer.logits[0], logit[0], 1e-4F);
  }
}

// hnswlib and faiss crash on some of these.
TEST(Peers, RefuseOptionsOutOfTheirRanges) {
  const bench::Head head = make_head(random_layer(50, 8, 1));
  for (const auto& [name, option, bad] :
       {std::array{"peer:hnswlib", "M", "0"}, std::array{"peer:hnswlib", "M", "1"},
        std::array{"peer:hnswlib-l2", "ef_construction", "0"}, std::array{"peer:hnswlib", "ef", "0"},
        std::array{"peer:faiss-hnsw", "M", "0"}, std::array{"peer:faiss-hnsw", "ef_search", "0"},
        std::array{"peer:faiss-hnsw", "ef_construction", "2147483648"},
        std::array{"peer:faiss-ivf", "lists", "0"}, std::array{"peer:faiss-ivf", "nprobe", "0"}}) {
    const BackendDescription* const backend = peer_named(name);
    if (backend == nullptr) continue;  // built without its library
    EXPECT_THAT(
        testing::error_of(
            [&, settings = Settings{{option, bad}}] { backend->build(bench::material_of(head), settings); }),
        ::testing::StartsWith(std::string(name) + ": " + option + " is " + bad + "; it must be at least "));
  }
}

TEST(Peers, TakeMasksAndBiases) {
  TokenMask mask(1000);
  for (TokenId id = 0; id < 1000; id += 2) mask.allow(id);
  const std::vector<TokenBias> biases = {{4, 3.0F}, {5, 9.0F}, {600, -1.0F}};
  expect_exact(random_layer(1000, 24, 1), {.k = 10, .allowed = mask, .logit_bias = biases});
}

/// oneDNN's products of rounded rows and contexts, and how far their logits may be off.
struct RoundedPeer {
  const char* name;
  double error;
};

class RoundedPeers : public ::testing::TestWithParam<RoundedPeer> {};

TEST_P(RoundedPeers, ComeCloseToTheExactLogits) {
  const BackendDescription* const description = peer_named(GetParam().name);
  if (description == nullptr) GTEST_SKIP() << "built without oneDNN";
  for (const Eigen::Index vocab : {1, 7, 1000}) {
    const SoftmaxLayer layer = random_layer(vocab, 24, 1);
    const bench::Head head = make_head(layer);
    const auto peer = description->build(bench::material_of(head));
    EXPECT_EQ(peer->name(), description->name);
    const QueryOptions options = {.k = 5};
    const auto exact = Exact::make(layer);
    const std::vector<TopK> batched = peer->query_batch(head.test, options);
    for (std::size_t i = 0; i < batched.size(); ++i) {
      const auto h = head.test.row(static_cast<Eigen::Index>(i));
      const TopK wanted = exact->query(h, options);
      for (const TopK& answer : {peer->query(h, options), batched[i]}) {
        ASSERT_EQ(answer.size(), wanted.size());
        EXPECT_FALSE(answer.certified);
        EXPECT_NEAR(answer.log_z, wanted.log_z, GetParam().error / 2);
        for (std::size_t j = 0; j < answer.size(); ++j) {
          EXPECT_NEAR(answer.logits[j], wanted.logits[j], GetParam().error);
          EXPECT_NEAR(answer.logits[j], layer_logit(layer, answer.ids[j], h), GetParam().error);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OneDnn, RoundedPeers,
                         ::testing::Values(RoundedPeer{"peer:onednn-int8", 0.1},
                                           RoundedPeer{"peer:onednn-bf16", 0.05}));

TEST(Peers, Int8TakesMasksBiasesAndUnusualContexts) {
  const BackendDescription* const int8_peer = peer_named("peer:onednn-int8");
  if (int8_peer == nullptr) GTEST_SKIP() << "built without oneDNN";
  const SoftmaxLayer layer = random_layer(1000, 24, 1);
  const bench::Head head = make_head(layer);
  const auto peer = int8_peer->build(bench::material_of(head));
  TokenMask mask(1000);
  for (TokenId id = 0; id < 1000; id += 2) mask.allow(id);
  const std::vector<TokenBias> biases = {{4, 300.0F}, {5, 900.0F}};
  for (const float scale : {0.0F, 1e-40F, 1.0F, 1e30F}) {
    const Eigen::VectorXf h = random_matrix(24, 1, 3, scale);
    const TopK answer = peer->query(h, {.k = 10, .allowed = mask, .logit_bias = biases});
    if (scale < 2.0F) {
      EXPECT_EQ(answer.ids[0], 4);
    }
    for (const TokenId id : answer.ids) EXPECT_EQ(id % 2, 0);
  }
}

}  // namespace
}  // namespace topksoftmax
