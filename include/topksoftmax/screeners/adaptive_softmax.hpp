// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "topksoftmax/contexts.hpp"
#include "topksoftmax/export.hpp"
#include "topksoftmax/screened_softmax.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace topksoftmax {

struct AdaptiveSoftmaxOptions {
  /// Most frequent tokens, which every query scores: 1 to V; V/10 unless given.
  std::optional<std::size_t> head = std::nullopt;
  /// Tiers of equal size that the other tokens make, at least 1.
  std::size_t tail_tiers = 16;
  /// Share of the contexts in which a tier's best logit is to stay below what its gate says, 0 to 1: the
  /// trade-off between speed and precision. Only with contexts.
  double caution = 0.99;
  /// Contexts that gates are learned from, evenly spaced ones of those given: at least 1.
  std::size_t context_sample = 8000;
  /// How often each token occurred in the training text [V], to tell which are frequent. Empty: the layer's
  /// biases tell, or if it has none, the lengths of its rows.
  std::vector<std::int64_t> counts = {};
};

class AdaptiveTiers;

/// Screens by frequency: candidates are the most frequent tokens, and the tiers of rarer ones that can still
/// hold one of the best.
class TOPKSOFTMAX_EXPORT AdaptiveSoftmaxScreener {
 public:
  AdaptiveSoftmaxScreener(SoftmaxLayer layer, std::shared_ptr<const AdaptiveTiers> tiers)
      : layer_(std::move(layer)), tiers_(std::move(tiers)) {}

  Candidates screen(const Query& query, Workspace& workspace) const;
  std::string_view name() const { return "adaptive"; }
  std::size_t index_bytes() const;
  void save(IndexWriter& out) const;

 private:
  SoftmaxLayer layer_;
  std::shared_ptr<const AdaptiveTiers> tiers_;
};

/// "Efficient softmax approximation for GPUs" (Grave, Joulin, Cissé, Grangier and Jégou, ICML 2017), its
/// inference on a layer that was trained without it.
///
/// The head holds the most frequent tokens; the paper's head also has a vector for each tier of the tail,
/// whose product with h says whether the tier is worth a look. Here such a gate g_t·h + a_t is fitted to the
/// tier's largest logit over training contexts (least squares), and raised until a share `caution` of these
/// lie below it. A tier is scored when its gate reaches the k-th best logit so far. Without contexts a gate
/// is a proven bound instead, c_t·h + r_t·‖h‖ + the tier's largest bias, c_t the mean of its rows and r_t the
/// distance of the farthest and what float32 may round: nothing is lost, and little is saved. Contexts so
/// long that products might overflow are answered from all rows. log Z is over the tokens scored.
///
/// Effort: the tiers, the most frequent first, that are scored whatever their gates say, and one more; beyond
/// their number every token is scored.
///
/// Cost of a query: (tiers + head)·d multiply-adds, and V/tiers·d for each tier scored. Index: 4·V +
/// 4·tiers·d bytes.
class TOPKSOFTMAX_EXPORT AdaptiveSoftmax final : public ScreenedSoftmax<AdaptiveSoftmaxScreener> {
 public:
  /// Gates that are proven bounds. Cost: V·d. Throws Error for unusable options.
  static std::unique_ptr<AdaptiveSoftmax> build(SoftmaxLayer layer,
                                                const AdaptiveSoftmaxOptions& options = {}) {
    const Contexts none = Contexts::none(layer.dim());
    return build(std::move(layer), none, options);
  }

  /// Gates learned from contexts [N×d] like those to come. Cost: context_sample·d·(V + d) multiply-adds.
  /// Throws Error also for contexts of another dimension or that are not finite.
  static std::unique_ptr<AdaptiveSoftmax> build(SoftmaxLayer layer, const ConstRows& contexts,
                                                const AdaptiveSoftmaxOptions& options = {}) {
    return build(std::move(layer), Contexts::of(contexts), options);
  }

  /// The same for contexts in plain memory; no contexts: the first form.
  static std::unique_ptr<AdaptiveSoftmax> build(SoftmaxLayer layer, const Contexts& contexts,
                                                const AdaptiveSoftmaxOptions& options);

  /// The backend whose index save() has written for the same layer: see load_index(), which throws as this
  /// does; here Error also for an index of another kind.
  static std::unique_ptr<AdaptiveSoftmax> load(const std::filesystem::path& path, SoftmaxLayer layer);

  /// The same from a file that is open.
  static std::unique_ptr<AdaptiveSoftmax> load(const IndexReader& in);

 private:
  using ScreenedSoftmax::ScreenedSoftmax;
};

}  // namespace topksoftmax
