// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/config.hpp"
#include "topksoftmax/wta/wta_lsh.hpp"

#if !defined(TOPKSOFTMAX_BUILDERS_ELSEWHERE)  // see config.hpp
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "topksoftmax/contexts.hpp"
#include "topksoftmax/learning/check_contexts.hpp"
#include "topksoftmax/learning/learn_outside_mass.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/rows/frequency_order.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/wta/build_wta_index.hpp"
#include "topksoftmax/wta/wta_index.hpp"
#include "topksoftmax/wta/wta_lsh.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<WtaLsh> WtaLsh::build(SoftmaxLayer layer, const Contexts& contexts,
                                                               const WtaLshOptions& options,
                                                               const Executor& executor) {
  const std::size_t top = std::min(options.top_frequent.value_or(layer.vocab() / 10), layer.vocab());
  detail::check_threshold(options.threshold, options.hash.bands);
  detail::check_contexts_if_any(layer, contexts, WtaLsh::kind);
  const std::vector<TokenId> order = detail::frequency_order(layer, options.counts, WtaLsh::kind);
  detail::report_indexing(options.progress);
  auto index = std::make_shared<const detail::WtaIndex>(layer, options.hash, executor);
  std::vector<std::uint64_t> frequent(index->mark_words(), 0);
  for (std::size_t i = 0; i < top; ++i) {
    const auto token = static_cast<std::size_t>(order[i]);
    frequent[token / 64] |= std::uint64_t{1} << (token % 64);
  }
  WtaLshScreener screener(std::move(index), options.threshold, top,
                          StoredArray<std::uint64_t>::own(std::move(frequent)));
  return detail::with_learned_outside<WtaLsh>(std::move(layer), std::move(screener), 1, contexts,
                                              options.outside_sample, executor,
                                              detail::learning_outside(options.progress, detail::kIndexed));
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<WtaLsh> WtaLsh::build(SoftmaxLayer layer, const ConstRows& contexts,
                                                               const WtaLshOptions& options,
                                                               const Executor& executor) {
  return build(std::move(layer), Contexts::of(contexts), options, executor);
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<WtaLsh> WtaLsh::build(SoftmaxLayer layer,
                                                               const WtaLshOptions& options,
                                                               const Executor& executor) {
  return build(std::move(layer), Contexts(), options, executor);
}

}  // namespace TOPKSOFTMAX_NAMESPACE

#endif
