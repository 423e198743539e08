// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/check_options.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/estimated_candidates.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/option_limits.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/screened_softmax.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/svd/svd_preview.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What SvdSoftmaxScreener works in.
struct SvdScratch {
  ScratchBuffer coordinates;  ///< of the context
  ScratchBuffer products;     ///< low-rank ones of all tokens
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

/// Options of SvdSoftmax. What builds throws Error for values out of their ranges.
struct SvdSoftmaxOptions {
  /// W, the singular directions that previews are made of: 1 to d; d/4 unless given.
  std::optional<std::size_t> preview_width = std::nullopt;
  /// N, tokens whose logits are computed exactly, at least 1; V/50 unless given. A query's `effort` overrides
  /// it.
  std::optional<std::size_t> refine_width = std::nullopt;

  /// Told how far the build is; may be empty.
  TrainingProgress progress = {};

  /// Calls visit(name, value, help[, limits]) for every option, in the order of their declaration.
  template <class Self, class Visit>
  static void visit(Self& options, Visit&& visit) {
    visit("preview_width", options.preview_width, "W, directions that previews are made of; d/4 if null",
          at_least(1));
    visit("refine_width", options.refine_width, "N, tokens that are refined; V/50 if null", at_least(1));
  }
};

/// Screens by low-rank logits: candidates are the tokens with the largest ones.
class TOPKSOFTMAX_EXPORT SvdSoftmaxScreener {
 public:
  /// Screens by a preview; `refine_width` of the tokens are scored in full.
  SvdSoftmaxScreener(std::shared_ptr<const SvdPreview> preview, std::size_t refine_width)
      : preview_(std::move(preview)), refine_width_(refine_width) {}

  /// The candidates of a query, in `workspace` until it is used again; see Screener.
  Candidates screen(const Query& query, Workspace& workspace) const;
  /// The backend's name.
  std::string_view name() const { return "svd"; }
  /// Bytes kept beside the layer.
  std::size_t index_bytes() const;
  /// Puts what the backend's load() reads into `out`.
  void save(IndexWriter& out) const;

 private:
  std::shared_ptr<const SvdPreview> preview_;
  std::size_t refine_width_;
};

/// "SVD-Softmax: Fast Softmax Approximation on Large Vocabulary Neural Networks" (Shim, Lee, Choi, Boo and
/// Sung, NIPS 2017).
///
/// With the singular value decomposition W = UΣVᵀ a logit is (UΣ)·(Vᵀh) + b. The preview takes the leading
/// coordinates of both, for every token; the N best of them get their exact logits. All other tokens keep
/// their preview logits in log Z (Normalizer::low_rank). The decomposition is made once, at the build.
///
/// Effort: N; from V on every token is scored.
///
/// Cost of a query, preview width W: W·d + V·W multiply-adds, and N·d weights. Index: 4·(W·(V + d) + V)
/// bytes.
class TOPKSOFTMAX_EXPORT SvdSoftmax final : public ScreenedSoftmax<SvdSoftmaxScreener> {
 public:
  /// Cost and memory: those of SvdPreview's constructor. Throws Error for unusable options. Defined in
  /// svd/build.hpp.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<SvdSoftmax> build(
      SoftmaxLayer layer, const SvdSoftmaxOptions& options = {},
      const Executor& executor = default_executor());

  /// The kind of its indexes.
  static constexpr std::string_view kind = "svd";

  /// The backend of an index that was saved for the same layer: see load_index().
  static std::unique_ptr<SvdSoftmax> load(const IndexReader& in);

 private:
  using ScreenedSoftmax::ScreenedSoftmax;
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The options with what they leave open chosen; throws Error for unusable ones.
inline SvdSoftmaxOptions chosen_svd(SvdSoftmaxOptions options, const SoftmaxLayer& layer) {
  options.preview_width = options.preview_width.value_or(std::max<std::size_t>(layer.dim() / 4, 1));
  options.refine_width = options.refine_width.value_or(std::max<std::size_t>(layer.vocab() / 50, 1));
  if (*options.preview_width < 1 || *options.preview_width > layer.dim()) {
    throw bad_value("svd: preview_width", *options.preview_width, "between 1 and d = ", layer.dim());
  }
  check_options("svd", options);
  return options;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline Candidates SvdSoftmaxScreener::screen(const Query& query, Workspace& workspace) const {
  const std::size_t vocab = preview_->vocab();
  const std::size_t wanted = query.effort != 0 ? query.effort : refine_width_;
  if (wanted >= vocab) return Candidates::all();
  detail::SvdScratch& scratch = workspace.scratch<detail::SvdScratch>();
  auto* const products = scratch.products.get<float>(vocab);
  preview_->products(query.h, workspace, scratch.coordinates.get<float>(preview_->width()), products);
  Candidates candidates =
      detail::best_estimated(query, preview_->transform(), products, vocab, wanted, workspace);
  candidates.screened = vocab;
  candidates.bytes_read = preview_->bytes();
  return candidates;
}

inline std::size_t SvdSoftmaxScreener::index_bytes() const {
  return preview_->bytes();
}

inline void SvdSoftmaxScreener::save(IndexWriter& out) const {
  out.kind(SvdSoftmax::kind);
  const SvdSoftmaxOptions options = {.preview_width = preview_->width(), .refine_width = refine_width_};
  SvdSoftmaxOptions::visit(options, out.options());
  preview_->save(out);
}

inline std::unique_ptr<SvdSoftmax> SvdSoftmax::load(const IndexReader& in) {
  SvdSoftmaxOptions options;
  SvdSoftmaxOptions::visit(options, in.options());
  in.check([&] { options = detail::chosen_svd(options, in.layer()); });
  auto preview = std::make_shared<const SvdPreview>(in, *options.preview_width);
  return std::unique_ptr<SvdSoftmax>(
      new SvdSoftmax(in.layer(), SvdSoftmaxScreener(std::move(preview), *options.refine_width)));
}

}  // namespace TOPKSOFTMAX_NAMESPACE
