// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/baselines/wta_lsh_each.hpp"
#include "topksoftmax/config.hpp"

#if !defined(TOPKSOFTMAX_BUILDERS_ELSEWHERE)  // see config.hpp
#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "topksoftmax/baselines/wta_lsh_each.hpp"
#include "topksoftmax/check_options.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/learning/check_contexts.hpp"
#include "topksoftmax/learning/learn_outside_mass.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/wta/build_wta_index.hpp"
#include "topksoftmax/wta/wta_index.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<WtaLshEach> WtaLshEach::build(SoftmaxLayer layer,
                                                                       const Contexts& contexts,
                                                                       const WtaLshEachOptions& options,
                                                                       const Executor& executor) {
  const std::size_t collisions =
      options.top_collisions.value_or(std::max<std::size_t>(layer.vocab() / 10, 1));
  check_options("wta-lsh-each", WtaLshEachOptions{.top_collisions = collisions});
  detail::check_contexts_if_any(layer, contexts, WtaLshEach::kind);
  detail::report_indexing(options.progress);
  auto index = std::make_shared<const detail::WtaIndex>(layer, options.hash, executor);
  return detail::with_learned_outside<WtaLshEach>(
      std::move(layer), WtaLshEachScreener(std::move(index), collisions), 1, contexts, options.outside_sample,
      executor, detail::learning_outside(options.progress, detail::kIndexed));
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<WtaLshEach> WtaLshEach::build(SoftmaxLayer layer,
                                                                       const ConstRows& contexts,
                                                                       const WtaLshEachOptions& options,
                                                                       const Executor& executor) {
  return build(std::move(layer), Contexts::of(contexts), options, executor);
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<WtaLshEach> WtaLshEach::build(SoftmaxLayer layer,
                                                                       const WtaLshEachOptions& options,
                                                                       const Executor& executor) {
  return build(std::move(layer), Contexts(), options, executor);
}

}  // namespace TOPKSOFTMAX_NAMESPACE

#endif
