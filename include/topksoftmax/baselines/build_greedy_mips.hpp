// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/baselines/greedy_mips.hpp"
#include "topksoftmax/config.hpp"

#if !defined(TOPKSOFTMAX_BUILDERS_ELSEWHERE)  // see config.hpp
#include <Eigen/Core>
#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "topksoftmax/baselines/greedy_mips.hpp"
#include "topksoftmax/check_options.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/learning/check_contexts.hpp"
#include "topksoftmax/learning/learn_outside_mass.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

TOPKSOFTMAX_BUILD_INLINE GreedyMipsIndex::GreedyMipsIndex(const SoftmaxLayer& layer, const Executor& executor)
    : vocab_(layer.vocab()), dim_(layer.dim()), coordinates_(dim_ + (layer.has_bias() ? 1 : 0)) {
  std::vector<Entry> entries(coordinates_ * vocab_);
  const RowMajorMatrix W = layer.weights();
  for_each_part(executor, coordinates_, 1, [&](std::size_t j, std::size_t) {
    Entry* const sorted = entries.data() + j * vocab_;
    for (std::size_t token = 0; token < vocab_; ++token) {
      const auto row = static_cast<Eigen::Index>(token);
      const float weight = j == dim_ ? layer.rows().bias[token] : W(row, static_cast<Eigen::Index>(j));
      sorted[token] = {weight, static_cast<TokenId>(token)};
    }
    std::sort(sorted, sorted + vocab_, [](const Entry& a, const Entry& b) {
      return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
    });
  });
  entries_ = StoredArray<Entry>::own(std::move(entries));
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<GreedyMips> GreedyMips::build(SoftmaxLayer layer,
                                                                       const Contexts& contexts,
                                                                       const GreedyMipsOptions& options,
                                                                       const Executor& executor) {
  const std::size_t budget = options.budget.value_or(std::max<std::size_t>(layer.vocab() / 10, 1));
  check_options("greedy-mips", GreedyMipsOptions{.budget = budget});
  detail::check_contexts_if_any(layer, contexts, GreedyMips::kind);
  detail::report_indexing(options.progress);
  auto index = std::make_shared<const detail::GreedyMipsIndex>(layer, executor);
  return detail::with_learned_outside<GreedyMips>(
      std::move(layer), GreedyMipsScreener(std::move(index), budget), 1, contexts, options.outside_sample,
      executor, detail::learning_outside(options.progress, detail::kIndexed));
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<GreedyMips> GreedyMips::build(SoftmaxLayer layer,
                                                                       const ConstRows& contexts,
                                                                       const GreedyMipsOptions& options,
                                                                       const Executor& executor) {
  return build(std::move(layer), Contexts::of(contexts), options, executor);
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<GreedyMips> GreedyMips::build(SoftmaxLayer layer,
                                                                       const GreedyMipsOptions& options,
                                                                       const Executor& executor) {
  return build(std::move(layer), Contexts(), options, executor);
}

}  // namespace TOPKSOFTMAX_NAMESPACE

#endif
