// SPDX-License-Identifier: Apache-2.0
//
// Backends over layers and indexes, asked with contexts, masks and biases, and answering into memory, all of
// which ends at a page that no one may touch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "conformance/backends.hpp"
#include "support/guarded.hpp"
#include "support/guarded_rows.hpp"
#include "support/layers.hpp"
#include "support/same_answers.hpp"
#include "topksoftmax/flat_answers.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/parallel/executor.hpp"

namespace topksoftmax {
namespace {

using testing::Backend;
using testing::Guarded;
using testing::GuardedRows;

constexpr std::size_t kVocab = 300;

struct Shape {
  WeightType type;
  std::size_t dim;
  std::size_t stride;
};

/// Awkward ones of each type, in whole blocks.
constexpr Shape kShapes[] = {
    {WeightType::float32, 1, 1},     {WeightType::float32, 17, 17},   {WeightType::float32, 33, 40},
    {WeightType::float32, 130, 130}, {WeightType::float32, 257, 257}, {WeightType::float16, 7, 9},
    {WeightType::float16, 65, 65},   {WeightType::bfloat16, 5, 5},    {WeightType::bfloat16, 63, 66},
    {WeightType::int8, 3, 3},        {WeightType::int8, 100, 101},    {WeightType::q8_0, 32, 32},
    {WeightType::q8_0, 96, 128},     {WeightType::q6_k, 256, 256},    {WeightType::q4_k, 256, 512}};

/// Sizes around tiles and groups of contexts.
constexpr std::size_t kBatches[] = {1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 27, 28, 33, 63, 64, 65, 100, 129, 130};

Guarded<float> contexts_of(const Shape& shape, std::size_t batch, std::size_t stride) {
  const Eigen::VectorXf values =
      testing::random_vector(static_cast<Eigen::Index>((batch - 1) * stride + shape.dim), 5);
  return Guarded<float>(std::span<const float>(values.data(), static_cast<std::size_t>(values.size())));
}

/// Flat answers to a batch.
class Answers {
 public:
  Answers(std::size_t batch, std::size_t k)
      : k_(k), ids_(batch * k), logits_(batch * k), log_z_(batch), certified_(batch) {}

  FlatAnswers flat() { return {ids_.data(), logits_.data(), log_z_.data(), certified_.data()}; }

  /// Logits are those of their tokens, and fall.
  void expect_right(const GuardedRows& rows, const Guarded<float>& contexts, std::size_t stride) const {
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      const auto id = static_cast<std::size_t>(ids_[i]);
      ASSERT_LT(id, kVocab);
      const auto [value, tolerance] = rows.logit(id, contexts.data() + i / k_ * stride);
      ASSERT_NEAR(logits_[i], value, tolerance) << "place " << i;
      if (i % k_ > 0) {
        ASSERT_LE(logits_[i], logits_[i - 1]);
      }
    }
  }

 private:
  std::size_t k_;
  Guarded<TokenId> ids_;
  Guarded<float> logits_;
  Guarded<double> log_z_;
  Guarded<std::uint8_t> certified_;
};

/// Asks for batches of every size.
void ask_batches(const TopKSoftmax& head, const GuardedRows& rows, const Shape& shape) {
  std::vector<Workspace> workspaces(1);
  for (const std::size_t batch : kBatches) {
    const std::size_t stride = shape.dim + batch % 3;
    const Guarded<float> contexts = contexts_of(shape, batch, stride);
    const std::size_t k = 1 + batch % 7;
    Answers answers(batch, k);
    head.query_batch(contexts.data(), batch, shape.dim, stride, {.k = k}, workspaces, answers.flat(),
                     SerialExecutor());
    answers.expect_right(rows, contexts, stride);
  }
}

/// Asks for one context at a time, with masks and biases, and for logits and bounds of some tokens.
void ask_alone(const TopKSoftmax& head, const GuardedRows& rows, const Shape& shape) {
  const Guarded<float> h = contexts_of(shape, 1, shape.dim);
  Guarded<std::uint64_t> mask((kVocab + 63) / 64);
  for (std::size_t id = 0; id < kVocab; id += 3) mask[id / 64] |= std::uint64_t{1} << id % 64;
  const Guarded<TokenBias> bias = {{0, 1.0F}, {63, 2.0F}, {299, 1e6F}};
  const std::span<const float> context(h.data(), shape.dim);
  const std::span<const std::uint64_t> allowed(mask.data(), mask.size());
  const std::span<const TokenBias> biases(bias.data(), bias.size());
  Workspace workspace;
  for (const std::size_t k : {std::size_t{1}, std::size_t{5}, kVocab}) {
    TopK answer;
    head.query(context, {.k = k}, workspace, answer);
    head.query(context, {.k = k, .allowed = allowed}, workspace, answer);
    for (const TokenId id : answer.ids) ASSERT_EQ(id % 3, 0);
    head.query(context, {.k = k, .logit_bias = biases}, workspace, answer);
    ASSERT_EQ(answer.ids.front(), 299);
    ASSERT_NEAR(answer.logits.front(), rows.logit(299, h.data()).value + 1e6, 0.1);
  }
  const Guarded<TokenId> ids = {299, 0, 150, 299, 16};
  const std::span<const TokenId> tokens(ids.data(), ids.size());
  Guarded<float> logits(ids.size());
  Guarded<float> bounds(ids.size());
  head.logits_of(context, tokens, {}, workspace, {logits.data(), logits.size()});
  head.upper_bounds(context, tokens, {}, workspace, {bounds.data(), bounds.size()});
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto [value, tolerance] = rows.logit(static_cast<std::size_t>(ids[i]), h.data());
    ASSERT_NEAR(logits[i], value, tolerance);
    ASSERT_GE(bounds[i], logits[i]);
  }
  BoundedTokens reaching;
  std::vector<ScoredToken> likely;
  head.tokens_reaching(context, logits[0], {}, workspace, reaching);
  head.likely_tokens(context, 12, {}, workspace, likely);
}

/// The same backend of an index whose tensors end there too: those that begin on a cache line then, as
/// readers copy others.
std::unique_ptr<TopKSoftmax> with_guarded_index(const TopKSoftmax& head) {
  IndexWriter out;
  head.save(out);
  const auto kept = std::make_shared<std::vector<std::unique_ptr<Guarded<std::byte>>>>();
  IndexContents contents = {"guarded", out.metadata(), out.tensors(), kept};
  for (TensorView& tensor : contents.tensors) {
    kept->push_back(std::make_unique<Guarded<std::byte>>(tensor.bytes));
    tensor.bytes = {kept->back()->data(), kept->back()->size()};
  }
  return testing::loader().load(IndexReader(std::move(contents), head.layer(), testing::loader()));
}

class GuardedBackends : public ::testing::TestWithParam<Backend> {};

TEST_P(GuardedBackends, TouchNothingBehindWhatTheyAreGiven) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(::testing::Message() << weight_type_name(shape.type) << ", d = " << shape.dim);
    const GuardedRows rows(shape.type, kVocab, shape.dim, shape.stride, 3);
    const SoftmaxLayer layer = SoftmaxLayer::borrow(rows.rows(), static_cast<std::ptrdiff_t>(kVocab));
    const RowMajorMatrix train = testing::clustered_contexts(150, static_cast<Eigen::Index>(shape.dim), 5, 7);
    const auto built = GetParam().make(layer, train);
    ask_batches(*built, rows, shape);
    ask_alone(*built, rows, shape);
    if (!GetParam().description.traits.has_index) continue;
    const auto loaded = with_guarded_index(*built);
    ask_batches(*loaded, rows, shape);
    ask_alone(*loaded, rows, shape);
    testing::expect_same_answers(*loaded, *built, train.topRows(5));
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, GuardedBackends, ::testing::ValuesIn(testing::all_backends()),
                         [](const auto& backend) { return testing::suite_name(backend.param); });

}  // namespace
}  // namespace topksoftmax
