// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/last_context.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "support/layers.hpp"
#include "support/same_answers.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/certified/certify.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/mapped_vocabulary.hpp"

namespace topksoftmax {
namespace {

using testing::clustered_contexts;
using testing::random_layer;

constexpr std::size_t kVocab = 1200;

/// Heads over two layers, which share a workspace.
std::vector<std::shared_ptr<const TopKSoftmax>> some_heads(const RowMajorMatrix& contexts) {
  std::vector<std::shared_ptr<const TopKSoftmax>> heads;
  for (const unsigned seed : {1U, 2U}) {
    const SoftmaxLayer layer = random_layer(kVocab, 20, seed);
    heads.push_back(Certified::build(layer, contexts, {.boxes = BoundBoxes::never}));
    heads.push_back(Certified::build(layer, contexts, {.boxes = BoundBoxes::always}));
    heads.push_back(Certify::wrap(std::make_shared<Fused>(layer), contexts));
    std::vector<TokenId> token_of_row;
    for (std::size_t row = 0; row < kVocab; ++row) {
      token_of_row.push_back(row % 7 == 3 ? -1 : static_cast<TokenId>(row));
    }
    heads.push_back(MappedVocabulary::wrap(heads[heads.size() - 3], token_of_row, kVocab));
    heads.push_back(Certified::build(layer, contexts, {.prefix = 4, .int4_width = 32}));
  }
  return heads;
}

TEST(SameContext, ChangesNoAnswerWhetherItIsTrueOrNot) {
  const RowMajorMatrix contexts = clustered_contexts(200, 20, 6, 9);
  const auto heads = some_heads(contexts);
  TokenMask masks[] = {TokenMask(kVocab), TokenMask(kVocab)};
  for (TokenId id = 0; id < static_cast<TokenId>(kVocab); ++id) masks[id % 2].allow(id);
  const TokenBias biases[] = {{4, 5.0F}, {5, 5.0F}, {700, -3.0F}};
  std::mt19937 engine(3);
  const auto pick = [&engine](std::size_t count) { return static_cast<std::size_t>(engine()) % count; };
  Workspace shared;
  for (int round = 0; round < 3000; ++round) {
    const TopKSoftmax& head = *heads[pick(heads.size())];
    const Eigen::VectorXf h = contexts.row(static_cast<Eigen::Index>(pick(3)));
    QueryOptions options{.k = 1 + pick(9), .same_context = true};
    if (pick(3) == 0) options.allowed = masks[pick(2)];
    if (pick(3) == 0) options.logit_bias = std::span(biases).first(1 + pick(3));
    if (pick(20) == 0) {
      const RowMajorMatrix batch = contexts.topRows(3);
      std::vector<TopK> answers(3);
      head.query_batch(batch, options, {&shared, 1}, answers);
    }
    TopK again;
    head.query(h, options, shared, again);
    options.same_context = false;
    const TopK fresh = head.query(h, options);
    testing::expect_same(again, fresh);
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

TEST(SameContext, ReadsLessTheSecondTime) {
  const RowMajorMatrix contexts = clustered_contexts(200, 20, 6, 9);
  for (const BoundBoxes boxes : {BoundBoxes::never, BoundBoxes::always}) {
    const auto head = Certified::build(random_layer(kVocab, 20, 1), contexts, {.boxes = boxes});
    const Eigen::VectorXf h = contexts.row(7);
    Workspace workspace;
    TopK first;
    TopK second;
    head->query(h, {.k = 5}, workspace, first);
    head->query(h, {.k = 5, .same_context = true}, workspace, second);
    EXPECT_LT(second.work.bytes_read, first.work.bytes_read);
    EXPECT_LT(second.work.screened, first.work.screened);
    // Said of another one, it is not believed.
    const Eigen::VectorXf other = contexts.row(8);
    head->query(other, {.k = 5, .same_context = true}, workspace, second);
    EXPECT_GE(second.work.screened, head->screener().index().bounds_scanned());
  }
}

}  // namespace
}  // namespace topksoftmax
