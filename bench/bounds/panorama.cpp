// SPDX-License-Identifier: Apache-2.0
#include "bounds/panorama.hpp"

#include <Eigen/Core>
#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "bounds/rounding.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/top_k_heap.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/rows/layer_moments.hpp"
#include "topksoftmax/rows/layer_rows.hpp"
#include "topksoftmax/screened_softmax.hpp"

namespace topksoftmax::bench {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;

/// What a PanoramaScreener works in.
struct PanoramaScratch {
  ScratchBuffer context;
  ScratchBuffer rests;     ///< ‖h₂‖ behind each level
  ScratchBuffer partial;   ///< of the rows of a batch that are left
  ScratchBuffer products;  ///< of a level
  ScratchBuffer left;      ///< which rows these are
  ScratchBuffer ids;
  ScratchBuffer best;
};

/// Some rows of a layer [count×d] in float64; of all of them that would be too much.
MatrixXd some_rows(const SoftmaxLayer& layer, std::size_t first, std::size_t count) {
  return detail::rows_from(layer, first, count).cast<double>();
}

/// Principal components of all rows, one a column, the largest first [d×d].
MatrixXd principal_components(const SoftmaxLayer& layer) {
  const MatrixXd gram = detail::layer_moments(layer, SerialExecutor()).gram();
  return Eigen::SelfAdjointEigenSolver<MatrixXd>(gram).eigenvectors().rowwise().reverse();
}

}  // namespace

PanoramaScreener::PanoramaScreener(const SoftmaxLayer& layer, const PanoramaOptions& options)
    : layer_(layer) {
  const std::size_t dim = layer.dim();
  components_ = principal_components(layer).transpose().cast<float>();
  const MatrixXd directions = components_.cast<double>().transpose();
  largest_bias_ = layer.biases().cast<double>().cwiseAbs().maxCoeff();
  const std::size_t levels = std::min(options.levels, dim);
  for (std::size_t level = 0; level <= levels; ++level) begin_.push_back(level * dim / levels);
  for (std::size_t first = 0; first < layer.vocab(); first += kBatchRows) {
    const MatrixXd rows = some_rows(layer, first, std::min(kBatchRows, layer.vocab() - first));
    longest_row_ = std::max(longest_row_, rows.rowwise().norm().maxCoeff());
    const MatrixXd batch = rows * directions;
    for (std::size_t level = 0; level < levels; ++level) {
      const auto at = static_cast<Index>(begin_[level]);
      const auto end = static_cast<Index>(begin_[level + 1]);
      for (Index row = 0; row < batch.rows(); ++row) {
        const Eigen::VectorXf part = batch.row(row).segment(at, end - at).transpose().cast<float>();
        rows_.insert(rows_.end(), part.begin(), part.end());
        rests_.push_back(outwards(batch.row(row).tail(batch.cols() - end).norm()));
      }
    }
  }
}

std::size_t PanoramaScreener::batch_size(std::size_t batch) const {
  return std::min(kBatchRows, layer_.vocab() - batch * kBatchRows);
}

kernels::Rows PanoramaScreener::level_of(std::size_t batch, std::size_t level) const {
  kernels::Rows rows;
  rows.count = batch_size(batch);
  rows.dim = rows.stride = begin_[level + 1] - begin_[level];
  rows.data = rows_.data() + batch * kBatchRows * layer_.dim() + begin_[level] * rows.count;
  return rows;
}

Candidates PanoramaScreener::screen(const Query& query, Workspace& workspace) const {
  const std::size_t dim = layer_.dim();
  const std::size_t levels = begin_.size() - 1;
  PanoramaScratch& scratch = workspace.scratch<PanoramaScratch>();
  const Eigen::Map<const Eigen::VectorXf> h(query.h, static_cast<Index>(dim));
  const double length = h.cast<double>().norm();
  const float* const biases = layer_.rows().bias;
  if (!query.edits.empty() || !layer_.transform().is_identity() || !(length * longest_row_ < kLargestLogit))
    return Candidates::all();
  Candidates candidates;
  auto* const x = scratch.context.get<float>(dim);
  auto* const rests = scratch.rests.get<float>(levels);
  Eigen::Map<Eigen::VectorXf> rotated(x, static_cast<Index>(dim));
  rotated.noalias() = components_ * h;
  for (std::size_t level = 0; level < levels; ++level) {
    rests[level] = outwards(rotated.tail(static_cast<Index>(dim - begin_[level + 1])).cast<double>().norm());
  }
  // What float32 makes of rotating both, of the products and of the logit itself.
  const float slack =
      outwards(8.0 * 0x1p-24 * static_cast<double>(dim + 8) * (longest_row_ * length + largest_bias_));

  auto* const partial = scratch.partial.get<float>(kBatchRows);
  auto* const products = scratch.products.get<float>(kBatchRows);
  auto* const left = scratch.left.get<TokenId>(kBatchRows);
  auto* const ids = scratch.ids.get<TokenId>(layer_.vocab());
  kernels::TopKHeap heap(scratch.best.get<ScoredToken>(query.k), query.k);
  std::size_t found = 0;
  for (std::size_t batch = 0; batch * kBatchRows < layer_.vocab(); ++batch) {
    const std::size_t size = batch_size(batch);
    const std::size_t first = batch * kBatchRows;
    std::size_t count = size;
    for (std::size_t i = 0; i < size; ++i) {
      left[i] = static_cast<TokenId>(i);
      partial[i] = biases == nullptr ? 0.0F : biases[first + i];
    }
    for (std::size_t level = 0; level < levels && count > 0; ++level) {
      const kernels::Rows rows = level_of(batch, level);
      const float* const of_rows = rests_.data() + first * levels + level * size;
      if (count == size) {
        kernels::scan(rows, 0, size, x + begin_[level], products);
      } else {
        kernels::scan_gathered(rows, left, count, x + begin_[level], products);
      }
      candidates.bytes_read += count * (rows.dim + 1) * sizeof(float);
      std::size_t kept = 0;
      for (std::size_t i = 0; i < count; ++i) {
        const float met = partial[i] + products[i];
        const float upper = met + rests[level] * of_rows[left[i]] + slack;
        partial[kept] = met;
        left[kept] = left[i];
        kept += upper < heap.threshold() ? 0U : 1U;
      }
      count = kept;
    }
    for (std::size_t i = 0; i < count; ++i) {
      ids[found++] = static_cast<TokenId>(first) + left[i];
      // No more than the logit is.
      heap.push({partial[i] - slack, ids[found - 1]});
    }
  }
  candidates.screened = layer_.vocab();
  candidates.ids = {ids, found};
  candidates.certified = true;
  return candidates;
}

BackendDescription panorama_bounds() {
  return {
      .name = "panorama",
      .kind = {},
      .summary = "Rows met level by level in their principal components, after Panorama",
      .traits = {.exact = true, .has_index = false},
      .builder = builder<PanoramaOptions>({}, [](const BuildMaterial& from, const PanoramaOptions& options) {
        return std::make_unique<ScreenedSoftmax<PanoramaScreener>>(from.layer,
                                                                   PanoramaScreener(from.layer, options));
      })};
}

}  // namespace topksoftmax::bench
