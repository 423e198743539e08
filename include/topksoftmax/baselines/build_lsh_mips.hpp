// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/baselines/lsh_mips.hpp"
#include "topksoftmax/config.hpp"

#if !defined(TOPKSOFTMAX_BUILDERS_ELSEWHERE)  // see config.hpp
#include <Eigen/Core>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "topksoftmax/baselines/lifted_rows.hpp"
#include "topksoftmax/baselines/lsh_mips.hpp"
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

TOPKSOFTMAX_BUILD_INLINE LshMipsIndex::LshMipsIndex(const SoftmaxLayer& layer, const LshMipsOptions& options,
                                                    const Executor& executor)
    : options_(options), vocab_(layer.vocab()) {
  options_.progress = {};  // whom it tells may not live as long
  const Eigen::MatrixXf lifted = lifted_rows(layer);
  std::mt19937_64 engine(options.seed);
  std::normal_distribution<float> normal;
  Eigen::MatrixXf directions(lifted.cols(), static_cast<Eigen::Index>(tables() * bits()));
  for (Eigen::Index i = 0; i < directions.size(); ++i) directions.data()[i] = normal(engine);
  directions_ = lifted_directions(directions, layer.has_bias());

  std::vector<std::uint32_t> all_offsets(tables() * (buckets() + 1), 0);
  std::vector<TokenId> ids(tables() * vocab_);
  for_each_part(executor, tables(), 1, [&](std::size_t table, std::size_t) {
    const Eigen::MatrixXf projections =
        lifted *
        directions.middleCols(static_cast<Eigen::Index>(table * bits()), static_cast<Eigen::Index>(bits()));
    std::uint32_t* const offsets = all_offsets.data() + table * (buckets() + 1);
    std::vector<std::uint32_t> codes(vocab_);
    for (std::size_t token = 0; token < vocab_; ++token) {
      const Eigen::VectorXf row = projections.row(static_cast<Eigen::Index>(token));
      codes[token] = code_of(row.data());
      ++offsets[codes[token] + 1];
    }
    for (std::size_t bucket = 0; bucket < buckets(); ++bucket) offsets[bucket + 1] += offsets[bucket];
    std::vector<std::uint32_t> next(offsets, offsets + buckets());
    for (std::size_t token = 0; token < vocab_; ++token) {
      ids[table * vocab_ + next[codes[token]]++] = static_cast<TokenId>(token);
    }
  });
  offsets_ = StoredArray<std::uint32_t>::own(std::move(all_offsets));
  ids_ = StoredArray<TokenId>::own(std::move(ids));
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<LshMips> LshMips::build(SoftmaxLayer layer, const Contexts& contexts,
                                                                 const LshMipsOptions& options,
                                                                 const Executor& executor) {
  check_options("lsh-mips", options);
  detail::check_contexts_if_any(layer, contexts, LshMips::kind);
  detail::report_indexing(options.progress);
  auto index = std::make_shared<const detail::LshMipsIndex>(layer, options, executor);
  return detail::with_learned_outside<LshMips>(std::move(layer), LshMipsScreener(std::move(index)), 1,
                                               contexts, options.outside_sample, executor,
                                               detail::learning_outside(options.progress, detail::kIndexed));
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<LshMips> LshMips::build(SoftmaxLayer layer,
                                                                 const ConstRows& contexts,
                                                                 const LshMipsOptions& options,
                                                                 const Executor& executor) {
  return build(std::move(layer), Contexts::of(contexts), options, executor);
}

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<LshMips> LshMips::build(SoftmaxLayer layer,
                                                                 const LshMipsOptions& options,
                                                                 const Executor& executor) {
  return build(std::move(layer), Contexts(), options, executor);
}

}  // namespace TOPKSOFTMAX_NAMESPACE

#endif
