// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/screeners/svd_softmax.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "io/index_reader.hpp"
#include "io/index_writer.hpp"
#include "screeners/estimated_candidates.hpp"
#include "screeners/svd_preview.hpp"
#include "topksoftmax/error.hpp"

namespace topksoftmax {
namespace {

constexpr std::string_view kName = "svd";

/// The options that an index file records.
template <class Options, class Visit>
void visit_options(Options& options, const Visit& visit) {
  visit("preview_width", options.preview_width);
  visit("refine_width", options.refine_width);
}

/// The options with what they leave open chosen; throws Error for unusable ones.
SvdSoftmaxOptions chosen(SvdSoftmaxOptions options, const SoftmaxLayer& layer) {
  options.preview_width = options.preview_width.value_or(std::max<std::size_t>(layer.dim() / 4, 1));
  options.refine_width = options.refine_width.value_or(std::max<std::size_t>(layer.vocab() / 50, 1));
  if (*options.preview_width < 1 || *options.preview_width > layer.dim()) {
    throw Error("svd: preview_width is " + std::to_string(*options.preview_width) +
                "; it must be between 1 and d = " + std::to_string(layer.dim()));
  }
  if (*options.refine_width < 1) throw Error("svd: refine_width is 0; it must be at least 1");
  return options;
}

}  // namespace

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

void SvdSoftmaxScreener::save(IndexWriter& out) const {
  out.kind(kName);
  const SvdSoftmaxOptions options = {.preview_width = preview_->width(), .refine_width = refine_width_};
  visit_options(options, out.options());
  preview_->save(out);
}

std::unique_ptr<SvdSoftmax> SvdSoftmax::build(SoftmaxLayer layer, const SvdSoftmaxOptions& options) {
  const SvdSoftmaxOptions all = chosen(options, layer);
  auto preview = std::make_shared<const SvdPreview>(layer, *all.preview_width);
  return std::unique_ptr<SvdSoftmax>(
      new SvdSoftmax(std::move(layer), SvdSoftmaxScreener(std::move(preview), *all.refine_width)));
}

std::unique_ptr<SvdSoftmax> SvdSoftmax::load(const std::filesystem::path& path, SoftmaxLayer layer) {
  return load(IndexReader::open(path, std::move(layer), kName));
}

std::unique_ptr<SvdSoftmax> SvdSoftmax::load(const IndexReader& in) {
  SvdSoftmaxOptions options;
  visit_options(options, in.options());
  in.check([&] { options = chosen(options, in.layer()); });
  auto preview = std::make_shared<const SvdPreview>(in, *options.preview_width);
  return std::unique_ptr<SvdSoftmax>(
      new SvdSoftmax(in.layer(), SvdSoftmaxScreener(std::move(preview), *options.refine_width)));
}

}  // namespace topksoftmax
