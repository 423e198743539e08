// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/config.hpp"
#include "topksoftmax/quantized/quantized.hpp"

#if !defined(TOPKSOFTMAX_BUILDERS_ELSEWHERE)  // see config.hpp
#include <Eigen/Core>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/learning/reported_parts.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/quantized/quantized.hpp"
#include "topksoftmax/rows/prefix_writer.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Whole blocks of rows.
inline constexpr std::size_t kQuantizedAtOnce = 64 * kernels::PrefixBlocks::kRows;

TOPKSOFTMAX_BUILD_INLINE QuantizedRows::QuantizedRows(const SoftmaxLayer& layer, const Executor& executor,
                                                      const TrainingProgress& progress)
    : dim_(layer.dim()), transform_(layer.transform()) {
  const std::size_t width = kernels::PrefixBlocks::width_for(dim_);
  PrefixWriter writer(layer.vocab(), width);
  const Eigen::VectorXf b = layer.biases();
  const StepProgress report = step_of(progress, "rounding the rows", 0.0, 1.0);
  for_each_reported_part(executor, layer.vocab(), kQuantizedAtOnce, report,
                         [&](std::size_t first, std::size_t count) {
                           std::vector<float> row(dim_);
                           std::vector<double> values(width, 0.0);
                           std::vector<std::int8_t> q(width);
                           for (std::size_t token = first; token < first + count; ++token) {
                             layer.copy_row(token, row.data());
                             std::copy(row.begin(), row.end(), values.begin());
                             writer.put(token, b[static_cast<Eigen::Index>(token)], values, q.data());
                           }
                         });
  store_ = std::move(writer).finish();
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<Quantized> Quantized::build(SoftmaxLayer layer,
                                                                     const QuantizedOptions& options,
                                                                     const Executor& executor) {
  detail::check_quantized(layer, options);
  auto rows = std::make_shared<const detail::QuantizedRows>(layer, executor, options.progress);
  return std::unique_ptr<Quantized>(
      new Quantized(std::move(layer), QuantizedScreener(std::move(rows), options.refine_width)));
}

}  // namespace TOPKSOFTMAX_NAMESPACE

#endif
