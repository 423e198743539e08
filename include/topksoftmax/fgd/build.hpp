// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/config.hpp"
#include "topksoftmax/fgd/fgd.hpp"

#if !defined(TOPKSOFTMAX_BUILDERS_ELSEWHERE)  // see config.hpp
#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "topksoftmax/contexts.hpp"
#include "topksoftmax/fgd/fgd.hpp"
#include "topksoftmax/fgd/fgd_index.hpp"
#include "topksoftmax/fgd/options.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/graph/build.hpp"
#include "topksoftmax/learning/check_contexts.hpp"
#include "topksoftmax/learning/evenly_spaced.hpp"
#include "topksoftmax/learning/exact_labels.hpp"
#include "topksoftmax/learning/labels.hpp"
#include "topksoftmax/learning/learn_outside_mass.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/rows/frequency_order.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

TOPKSOFTMAX_BUILD_INLINE FgdIndex::FgdIndex(const SoftmaxLayer& layer, const FgdOptions& options,
                                            std::vector<TokenId> entries, const StepProgress& inserted)
    : options_(options),
      graph_(layer,
             {.M = options.M,
              .ef_construction = options.ef_construction,
              .seed = options.seed,
              .progress = inserted},
             std::move(entries)),
      rows_(layer.products()),
      dim_(layer.dim()) {
  options_.progress = {};  // whom it tells may not live as long
  if (layer.weight_type() != WeightType::int8) rows_ = copy_.emplace(layer).rows();
}

/// The tokens that are most often the first of the contexts, the most frequent first; none without contexts.
inline std::vector<TokenId> frequent_winners(const SoftmaxLayer& layer, const Contexts& contexts,
                                             const FgdOptions& options, const StepProgress& report,
                                             const Executor& executor) {
  if (contexts.count == 0) return {};
  const RowMajorMatrix sample = evenly_spaced(contexts, options.context_sample);
  std::vector<std::size_t> wins(layer.vocab(), 0);
  const Labels winners = exact_labels(Fused(layer), Contexts::of(sample), {}, report, executor);
  for (const TokenId winner : winners.ids) ++wins[static_cast<std::size_t>(winner)];
  std::vector<TokenId> tokens = by_falling(wins, layer.vocab());
  const auto has_won = [&wins](TokenId token) { return wins[static_cast<std::size_t>(token)] > 0; };
  const auto won =
      static_cast<std::size_t>(std::partition_point(tokens.begin(), tokens.end(), has_won) - tokens.begin());
  tokens.resize(std::min(won, options.entry_points));
  return tokens;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<Fgd> Fgd::build(SoftmaxLayer layer, const Contexts& contexts,
                                                         const FgdOptions& options,
                                                         const Executor& executor) {
  detail::check_fgd_options(layer, options);
  detail::check_contexts_if_any(layer, contexts, Fgd::kind);
  // What each step ends at: about the shares of time that they take.
  constexpr double kEntered = 0.1;
  const double inserted = options.outside_sample > 0 ? 0.8 : 1.0;
  std::vector<TokenId> entries = detail::frequent_winners(
      layer, contexts, options,
      detail::step_of(options.progress, "finding the frequent tokens", 0.0, kEntered), executor);
  auto index = std::make_shared<const detail::FgdIndex>(
      layer, options, std::move(entries),
      detail::step_of(options.progress, "inserting the rows", kEntered, inserted));
  return detail::with_learned_outside<Fgd>(std::move(layer), FgdScreener(std::move(index)), 1, contexts,
                                           options.outside_sample, executor,
                                           detail::learning_outside(options.progress, inserted));
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<Fgd> Fgd::build(SoftmaxLayer layer, const FgdOptions& options,
                                                         const Executor& executor) {
  return build(std::move(layer), Contexts(), options, executor);
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<Fgd> Fgd::build(SoftmaxLayer layer, const ConstRows& contexts,
                                                         const FgdOptions& options,
                                                         const Executor& executor) {
  return build(std::move(layer), Contexts::of(contexts), options, executor);
}

}  // namespace TOPKSOFTMAX_NAMESPACE

#endif
