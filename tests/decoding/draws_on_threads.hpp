// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "support/executors.hpp"
#include "support/layers.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/decoding/random_stream.hpp"
#include "topksoftmax/decoding/sampling_options.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax::testing {

/// A layer that is large enough for its work to be shared, and contexts.
struct SharedWork {
  SoftmaxLayer layer = random_layer(9000, 48, 21);
  RowMajorMatrix contexts = clustered_contexts(300, 48, 10, 22);

  /// Context i of the test.
  std::span<const float> context(Eigen::Index i) const { return {contexts.row(i).data(), 48}; }

  /// Heads that tell tokens in different ways: from all logits, and from bounds without and with boxes.
  std::vector<std::unique_ptr<TopKSoftmax>> heads() const {
    std::vector<std::unique_ptr<TopKSoftmax>> made;
    made.push_back(Fused::make(layer));
    made.push_back(Certified::build(layer, contexts, {.boxes = BoundBoxes::never}));
    made.push_back(Certified::build(layer, contexts, {.boxes = BoundBoxes::always}));
    return made;
  }
};

/// Expects an AnySampler with each of these options to draw on threads what it draws on one, and more loops
/// than `least` to have been shared.
template <class AnySampler>
void expect_same_draws_on_threads(const TopKSoftmax& head, const SharedWork& work,
                                  std::span<const SamplingOptions> cases, std::size_t least) {
  const CountedExecutor executor;
  for (const SamplingOptions& options : cases) {
    AnySampler one(options);
    AnySampler many(options);
    RandomStream random(5);
    RandomStream same(5);
    for (Eigen::Index q = 0; q < 6; ++q) {
      const std::span<const float> h = work.context(q);
      const QueryOptions query = {.probabilities = q % 2 == 0};
      const SampledToken alone = one.draw(head, h.data(), h.size(), random, query);
      const SampledToken shared = many.draw(head, h, same, query, executor);
      ASSERT_EQ(shared.id, alone.id) << head.name();
      ASSERT_EQ(shared.logit, alone.logit);
      ASSERT_EQ(shared.log_prob, alone.log_prob);
      ASSERT_EQ(shared.log_prob_low, alone.log_prob_low);
      ASSERT_EQ(shared.log_prob_high, alone.log_prob_high);
    }
  }
  EXPECT_GT(executor.loops(), least) << "nothing was shared: " << head.name();
}

}  // namespace topksoftmax::testing
