// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/config.hpp"
#include "topksoftmax/l2s/l2s.hpp"

#if !defined(TOPKSOFTMAX_BUILDERS_ELSEWHERE)  // see config.hpp
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "topksoftmax/contexts.hpp"
#include "topksoftmax/l2s/l2s.hpp"
#include "topksoftmax/l2s/labelling.hpp"
#include "topksoftmax/l2s/learn_outside.hpp"
#include "topksoftmax/l2s/model.hpp"
#include "topksoftmax/l2s/options.hpp"
#include "topksoftmax/l2s/training.hpp"
#include "topksoftmax/learning/check_contexts.hpp"
#include "topksoftmax/learning/labels.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/outside_mass.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<L2S> L2S::train(SoftmaxLayer layer, const Contexts& contexts,
                                                         const L2SOptions& options, std::string_view name,
                                                         const Executor& executor) {
  detail::check_contexts(layer, contexts, "l2s");
  detail::check(options);
  // What each step ends at: about the shares of time that they take.
  constexpr double kLabelled = 0.5;
  const double trained = options.outside_sample > 0 ? 0.75 : 1.0;
  const Labels labels = detail::cheapest_labels(layer, contexts,
                                                {.top = options.label_count,
                                                 .depth = options.label_depth,
                                                 .near_miss_value = options.near_miss_value,
                                                 .near_miss_temperature = options.near_miss_temperature},
                                                detail::part_of(options.progress, 0.0, kLabelled), executor);
  L2SOptions training = options;
  training.progress = detail::part_of(options.progress, kLabelled, trained);
  L2SModel model = train_l2s(contexts, labels, training, executor);
  const StepProgress report = detail::learning_outside(options.progress, trained);
  std::optional<OutsideMass> outside =
      detail::learn_l2s_outside(layer, model, contexts, labels, options, executor, report);
  if (report) report(1.0);
  L2SScreener screener(std::move(model), options, layer, std::string(name));
  return std::make_unique<L2S>(std::move(layer), std::move(screener), std::move(outside));
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<L2S> L2S::train(SoftmaxLayer layer, const ConstRows& contexts,
                                                         const L2SOptions& options,
                                                         const Executor& executor) {
  return train(std::move(layer), Contexts::of(contexts), options, "l2s", executor);
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<L2S> L2S::train_kmeans(SoftmaxLayer layer, const ConstRows& contexts,
                                                                L2SOptions options,
                                                                const Executor& executor) {
  options.rounds = 0;
  return train(std::move(layer), Contexts::of(contexts), options, "l2s-kmeans", executor);
}

}  // namespace TOPKSOFTMAX_NAMESPACE

#endif
