// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "topksoftmax/kernels/implementation.hpp"
#include "topksoftmax/kernels/top_k_heap.hpp"

namespace topksoftmax {
namespace {

using kernels::detail::Implementation;

class FewKernels : public ::testing::TestWithParam<Implementation> {
 protected:
  /// Values of which many are equal.
  std::vector<float> values(std::size_t count) {
    std::vector<float> x(count);
    for (float& value : x) value = static_cast<float>(static_cast<int>(engine_() % 23) - 11) * 0.5F;
    return x;
  }

  std::mt19937 engine_{3};
};

TEST_P(FewKernels, FindTheKthLargest) {
  for (std::size_t count = 1; count <= kernels::kFew; ++count) {
    const std::vector<float> x = values(count);
    std::vector<float> sorted = x;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    for (std::size_t k = 1; k <= count; ++k) {
      ASSERT_EQ(GetParam().kth_of_few(x.data(), count, k), sorted[k - 1]) << count << ' ' << k;
    }
  }
}

TEST_P(FewKernels, RankAsAHeapDoes) {
  for (std::size_t count = 0; count <= 5 * kernels::kFew; ++count) {
    std::vector<float> logits = values(count);
    std::vector<TokenId> ids(count);
    for (std::size_t i = 0; i < count; ++i) {
      ids[i] = static_cast<TokenId>((i * 37 + 5) % 331);
      if (engine_() % 5 == 0) logits[i] = -std::numeric_limits<float>::infinity();
    }
    for (const std::size_t k : {1U, 2U, 5U, 8U, 16U, 17U, 64U, 100U}) {
      std::vector<ScoredToken> kept(k);
      std::vector<ScoredToken> ranked(k);
      kernels::TopKHeap heap(kept.data(), k);
      GetParam().select(logits.data(), ids.data(), count, heap);
      const auto expected = heap.sort();
      const std::size_t found = GetParam().rank_best(logits.data(), ids.data(), count, k, ranked.data());
      ASSERT_EQ(found, expected.size());
      for (std::size_t i = 0; i < found; ++i) {
        ASSERT_EQ(ranked[i].id, expected[i].id) << count << ' ' << k;
        ASSERT_EQ(ranked[i].logit, expected[i].logit);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, FewKernels,
    ::testing::ValuesIn(std::vector<Implementation>(kernels::detail::implementations().begin(),
                                                    kernels::detail::implementations().end())),
    [](const auto& kernel) { return std::string(kernel.param.name); });

}  // namespace
}  // namespace topksoftmax
