// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/screeners/svd_softmax.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "screeners/estimated_candidates.hpp"
#include "screeners/svd_preview.hpp"
#include "topksoftmax/error.hpp"

namespace topksoftmax {

Candidates SvdSoftmaxScreener::screen(const Query& query, Workspace& workspace) const {
  Candidates candidates;
  const std::size_t vocab = preview_->vocab();
  const std::size_t wanted = query.effort != 0 ? query.effort : refine_width_;
  if (wanted >= vocab) {
    candidates.everything = true;
    return candidates;
  }
  auto* const logits = workspace.screen[1].get<float>(vocab);
  preview_->logits(query.h, workspace.screen[0].get<float>(preview_->width()), logits);
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
