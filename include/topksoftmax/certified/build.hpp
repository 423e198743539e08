// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/certified/certify.hpp"
#include "topksoftmax/config.hpp"

#if !defined(TOPKSOFTMAX_BUILDERS_ELSEWHERE)  // see config.hpp
#include <Eigen/Core>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "topksoftmax/certified/building/choice.hpp"
#include "topksoftmax/certified/building/context_coordinates.hpp"
#include "topksoftmax/certified/building/coordinates.hpp"
#include "topksoftmax/certified/building/learn_outside.hpp"
#include "topksoftmax/certified/building/outside_position.hpp"
#include "topksoftmax/certified/building/packing.hpp"
#include "topksoftmax/certified/building/row_projector.hpp"
#include "topksoftmax/certified/building/similar_rows.hpp"
#include "topksoftmax/certified/building/trials.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/certified/certify.hpp"
#include "topksoftmax/certified/index.hpp"
#include "topksoftmax/certified/options.hpp"
#include "topksoftmax/certified/row_covariance.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/learning/check_contexts.hpp"
#include "topksoftmax/learning/distinct_contexts.hpp"
#include "topksoftmax/learning/evenly_spaced.hpp"
#include "topksoftmax/learning/hold_out.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/rows/layer_moments.hpp"
#include "topksoftmax/rows/layer_rows.hpp"
#include "topksoftmax/rows/row_order.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Some of the contexts; without any, rows of W stand for them.
inline RowMajorMatrix likely_contexts(const SoftmaxLayer& layer, const RowMajorMatrix& contexts) {
  constexpr std::size_t kMany = 256;
  if (contexts.rows() > 0) return evenly_spaced(Contexts::of(contexts), kMany);
  return rows_at(layer, evenly_spaced_tokens(layer, kMany));
}

/// At most `count` of the contexts, each once, made so short that their squares are floats: longer ones are
/// never bounded, but have directions to learn from.
inline RowMajorMatrix contexts_to_learn_from(const Contexts& contexts, std::size_t count) {
  constexpr float kLargest = 1e15F;
  RowMajorMatrix sample = distinct_contexts(evenly_spaced(contexts, count));
  const float peak = sample.size() == 0 ? 0.0F : sample.cwiseAbs().maxCoeff();
  if (peak > kLargest) sample *= kLargest / peak;
  return sample;
}

/// What is learned of the rows' moments, which are large and not kept.
struct LearnedRows {
  std::optional<RowCovariance> covariance;  ///< where it is worth keeping
  LearnedCoordinates coordinates;
};

inline LearnedRows learn_rows(const SoftmaxLayer& layer, const RowMajorMatrix& contexts,
                              BoundCoordinates kind, const Executor& executor) {
  const LayerMoments moments = layer_moments(layer, executor);
  std::optional<RowCovariance> covariance;
  if (RowCovariance::is_worth_keeping(layer.dim(), layer.bytes())) covariance.emplace(moments);
  return {.covariance = std::move(covariance),
          .coordinates = LearnedCoordinates(moments.gram(), contexts, kind, executor)};
}

/// Learns coordinates, chooses what is left open by the work that it makes for the contexts, and packs the
/// rows. `contexts` [N×d] may be empty. Throws Error for unusable options, and what options.progress throws.
inline CertifiedIndex build_certified_index(const SoftmaxLayer& layer, const Contexts& contexts,
                                            const CertifiedOptions& options, const Executor& executor) {
  // Contexts that the choices are made by.
  constexpr std::size_t kChoosingContexts = 96;
  check_certified_options(options);
  // What each step ends at: about the shares of time that they take.
  constexpr double kLearned = 0.25;
  constexpr double kChosen = 0.6;
  constexpr double kOrdered = 0.68;
  constexpr double kPlaced = 0.75;
  tell(options.progress, "learning the coordinates", 0.0);
  RowMajorMatrix sampled = contexts_to_learn_from(contexts, options.context_sample);
  RowMajorMatrix judged = hold_out(sampled, kChoosingContexts);
  LearnedRows rows = learn_rows(layer, sampled, options.coordinates, executor);
  const StepProgress chosen = step_of(options.progress, "choosing the bounds", kLearned, kChosen);
  const Trials trials(layer, std::move(judged), options.expected_k, executor);
  BoundChoice choice = BoundChooser(layer, rows.coordinates, trials, options, chosen, executor).choose();
  CertifiedIndex index;
  index.options = choice.options;
  index.options.progress = {};  // whom it tells may not live as long
  index.transform = std::move(choice.transform);
  index.covariance = std::move(rows.covariance);
  const RowProjector projector(layer, index.transform);
  const ContextCoordinates typical(likely_contexts(layer, sampled), index.transform, executor);
  const bool boxed = index.options.boxes == BoundBoxes::always;
  if (boxed) {
    const StepProgress ordered = step_of(options.progress, "ordering the rows", kChosen, kOrdered);
    index.order =
        RowOrder(StoredArray<TokenId>::own(similar_rows(layer, projector, typical, ordered, executor)));
  }
  const StepProgress placed =
      step_of(options.progress, "placing the rows", boxed ? kOrdered : kChosen, kPlaced);
  RowPacker(layer, projector, index.order, index.options).pack(typical, placed, executor, index);
  const StepProgress learned = step_of(options.progress, "learning the estimate of log Z", kPlaced, 1.0);
  index.outside.position = typical_position(layer, index, trials, executor);
  learn_outside(layer, sampled, options.outside_sample, learned, executor, index);
  tell(options.progress, "learning the estimate of log Z", 1.0);
  return index;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<Certified> Certified::build(SoftmaxLayer layer,
                                                                     const Contexts& contexts,
                                                                     const CertifiedOptions& options,
                                                                     const Executor& executor) {
  detail::check_contexts(layer, contexts, "certified");
  auto index = std::make_shared<const detail::CertifiedIndex>(
      detail::build_certified_index(layer, contexts, options, executor));
  return std::unique_ptr<Certified>(new Certified(layer, std::move(index)));
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<Certified> Certified::build(SoftmaxLayer layer,
                                                                     const ConstRows& contexts,
                                                                     const CertifiedOptions& options,
                                                                     const Executor& executor) {
  return build(std::move(layer), Contexts::of(contexts), options, executor);
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<Certified> Certified::build(SoftmaxLayer layer,
                                                                     const CertifiedOptions& options,
                                                                     const Executor& executor) {
  const Contexts none = Contexts::none(layer.dim());
  return build(std::move(layer), none, options, executor);
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<Certify> Certify::wrap(std::shared_ptr<const TopKSoftmax> backend,
                                                                const Contexts& contexts,
                                                                const CertifiedOptions& options,
                                                                const Executor& executor) {
  if (backend == nullptr) throw Error("certify: there is no backend to wrap");
  if (backend->collective()) {
    throw Error("certify: " + std::string(backend->name()) +
                " answers together with other processes; wrap the backend that each of them has");
  }
  detail::check_contexts(backend->layer(), contexts, "certify");
  auto index = std::make_shared<const detail::CertifiedIndex>(
      detail::build_certified_index(backend->layer(), contexts, options, executor));
  return std::unique_ptr<Certify>(new Certify(std::move(backend), std::move(index)));
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<Certify> Certify::wrap(std::shared_ptr<const TopKSoftmax> backend,
                                                                const ConstRows& contexts,
                                                                const CertifiedOptions& options,
                                                                const Executor& executor) {
  return wrap(std::move(backend), Contexts::of(contexts), options, executor);
}

}  // namespace TOPKSOFTMAX_NAMESPACE

#endif
