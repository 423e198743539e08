// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/screeners/svd_softmax.hpp"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <string>
#include <utility>

#include "rows_of.hpp"
#include "screeners/estimated_candidates.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/kernels/implementation.hpp"

namespace topksoftmax {
/// The leading columns of UΣ and V.
class SvdPreview {
 public:
  SvdPreview(const SoftmaxLayer& layer, std::size_t width) {
    const RowMajorMatrix W = layer.weights();
    const Eigen::MatrixXd wide = W.cast<double>();
    // V's columns are the eigenvectors of WᵀW, and UΣ is WV.
    const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> eigen(wide.transpose() * wide);
    const Eigen::MatrixXd V =
        eigen.eigenvectors().rowwise().reverse().leftCols(static_cast<Eigen::Index>(width));
    directions_ = V.transpose().cast<float>();
    tokens_ = (wide * V).cast<float>();
    biases_ = layer.biases();
  }

  /// Vᵀ [width×d].
  kernels::Rows directions() const { return rows_of(directions_); }

  /// UΣ [V×width] and b.
  kernels::Rows tokens() const {
    kernels::Rows rows = rows_of(tokens_);
    rows.bias = biases_.data();
    return rows;
  }

  std::size_t bytes() const {
    return directions().bytes(directions().count) + tokens().bytes(tokens().count);
  }

 private:
  RowMajorMatrix directions_;
  RowMajorMatrix tokens_;
  Eigen::VectorXf biases_;
};

Candidates SvdSoftmaxScreener::screen(const Query& query, Workspace& workspace) const {
  Candidates candidates;
  const kernels::Implementation& kernel = kernels::active();
  const kernels::Rows directions = preview_->directions();
  const kernels::Rows tokens = preview_->tokens();
  const std::size_t vocab = tokens.count;
  const std::size_t wanted = query.effort != 0 ? query.effort : refine_width_;
  if (wanted >= vocab) {
    candidates.everything = true;
    return candidates;
  }
  auto* const turned = workspace.screen[0].get<float>(directions.count);
  kernel.scan(directions, 0, directions.count, query.h, turned);
  auto* const logits = workspace.screen[1].get<float>(vocab);
  kernel.scan(tokens, 0, vocab, turned, logits);
  candidates = best_estimated(query, logits, vocab, wanted, workspace);
  candidates.screened = vocab;
  candidates.bytes_read = preview_->bytes();
  return candidates;
}

std::size_t SvdSoftmaxScreener::index_bytes() const {
  return preview_->bytes();
}

std::unique_ptr<SvdSoftmax> SvdSoftmax::build(SoftmaxLayer layer, const SvdSoftmaxOptions& options) {
  const std::size_t width = options.preview_width.value_or(std::max<std::size_t>(layer.dim() / 4, 1));
  const std::size_t refine = options.refine_width.value_or(std::max<std::size_t>(layer.vocab() / 50, 1));
  if (width < 1 || width > layer.dim()) {
    throw Error("svd: preview_width is " + std::to_string(width) +
                "; it must be between 1 and d = " + std::to_string(layer.dim()));
  }
  if (refine < 1) throw Error("svd: refine_width is 0; it must be at least 1");
  auto preview = std::make_shared<const SvdPreview>(layer, width);
  return std::unique_ptr<SvdSoftmax>(
      new SvdSoftmax(std::move(layer), SvdSoftmaxScreener(std::move(preview), refine)));
}

}  // namespace topksoftmax
