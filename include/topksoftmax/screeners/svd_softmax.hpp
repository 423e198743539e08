// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "topksoftmax/export.hpp"
#include "topksoftmax/screened_softmax.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace topksoftmax {

struct SvdSoftmaxOptions {
  /// W, the singular directions that previews are made of: 1 to d; d/4 unless given.
  std::optional<std::size_t> preview_width = std::nullopt;
  /// N, tokens whose logits are computed exactly, at least 1; V/50 unless given. A query's `effort` overrides
  /// it.
  std::optional<std::size_t> refine_width = std::nullopt;
};

class SvdPreview;

/// Screens by low-rank logits: candidates are the tokens with the largest ones.
class TOPKSOFTMAX_EXPORT SvdSoftmaxScreener {
 public:
  SvdSoftmaxScreener(std::shared_ptr<const SvdPreview> preview, std::size_t refine_width)
      : preview_(std::move(preview)), refine_width_(refine_width) {}

  Candidates screen(const Query& query, Workspace& workspace) const;
  std::string_view name() const { return "svd"; }
  std::size_t index_bytes() const;
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
/// Cost of a query, preview width W: W·d + V·W multiply-adds, and N·d weights. Index: 4·W·(V + d) bytes.
class TOPKSOFTMAX_EXPORT SvdSoftmax final : public ScreenedSoftmax<SvdSoftmaxScreener> {
 public:
  /// Cost: V·d² + d³. Throws Error for unusable options.
  static std::unique_ptr<SvdSoftmax> build(SoftmaxLayer layer, const SvdSoftmaxOptions& options = {});

  /// The backend whose index save() has written for the same layer: see load_index(), which throws as this
  /// does; here Error also for an index of another kind.
  static std::unique_ptr<SvdSoftmax> load(const std::filesystem::path& path, SoftmaxLayer layer);

  /// The same from a file that is open.
  static std::unique_ptr<SvdSoftmax> load(const IndexReader& in);

 private:
  using ScreenedSoftmax::ScreenedSoftmax;
};

}  // namespace topksoftmax
