// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/config.hpp"
#include "topksoftmax/shortlist/shortlist.hpp"

#if !defined(TOPKSOFTMAX_BUILDERS_ELSEWHERE)  // see config.hpp
#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "topksoftmax/check_options.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/learning/check_contexts.hpp"
#include "topksoftmax/learning/learn_outside_mass.hpp"
#include "topksoftmax/outside_mass.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/rows/frequency_order.hpp"
#include "topksoftmax/shortlist/shortlist.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<Shortlist> Shortlist::build(SoftmaxLayer layer,
                                                                     const Contexts& contexts,
                                                                     const ShortlistOptions& options,
                                                                     const Executor& executor) {
  const std::size_t top = options.top_frequent.value_or(std::max<std::size_t>(layer.vocab() / 10, 1));
  check_options("shortlist", options);
  detail::check_contexts_if_any(layer, contexts, Shortlist::kind);
  const auto order =
      StoredArray<TokenId>::own(detail::frequency_order(layer, options.counts, Shortlist::kind));
  const std::span<const TokenId> first = order.span().first(std::min(top, layer.vocab()));
  ShortlistScreener screener = screener_of(layer, {first.begin(), first.end()});
  const StepProgress report = detail::learning_outside(options.progress, 0.0);
  std::optional<OutsideMass> outside =
      detail::learn_outside_mass(layer, screener, 1, contexts, options.outside_sample, executor, report);
  if (report) report(1.0);
  return std::unique_ptr<Shortlist>(
      new Shortlist(layer, order, std::move(screener), top, std::move(outside)));
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<Shortlist> Shortlist::build(SoftmaxLayer layer,
                                                                     const ConstRows& contexts,
                                                                     const ShortlistOptions& options,
                                                                     const Executor& executor) {
  return build(std::move(layer), Contexts::of(contexts), options, executor);
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<Shortlist> Shortlist::build(SoftmaxLayer layer,
                                                                     const ShortlistOptions& options) {
  return build(std::move(layer), Contexts(), options, SerialExecutor());
}

}  // namespace TOPKSOFTMAX_NAMESPACE

#endif
