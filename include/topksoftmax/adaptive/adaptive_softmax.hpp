// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/check_options.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/logit_transform.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/kernels/top_k_heap.hpp"
#include "topksoftmax/learning/outside_option.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/numeric/round_outwards.hpp"
#include "topksoftmax/option_limits.hpp"
#include "topksoftmax/outside_mass.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/rows/stored_rows.hpp"
#include "topksoftmax/screened_softmax.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/storage/stored_lists.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What AdaptiveSoftmaxScreener works in.
struct AdaptiveScratch {
  ScratchBuffer gates;   ///< what each tier may reach
  ScratchBuffer masses;  ///< of the tiers, then of those that are left out
  ScratchBuffer ids;     ///< of the candidates
  ScratchBuffer logits;  ///< theirs
  ScratchBuffer best;
};

class AdaptiveTiers;

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

/// Options of AdaptiveSoftmax. What builds throws Error for values out of their ranges.
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
  /// Contexts, evenly spaced ones, that the mass of each tier is learned from
  /// (Normalizer::learned); 0, or fewer than 100 contexts: it is not.
  std::size_t outside_sample = 5000;
  /// How often each token occurred in the training text [V], to tell which are frequent. Empty: the layer's
  /// biases tell, or if it has none, the lengths of its rows.
  std::vector<std::int64_t> counts = {};

  /// Told how far the build is; may be empty.
  TrainingProgress progress = {};

  /// What its indexes have of them.
  template <class Self, class Visit>
  static void visit_index(Self& options, Visit&& visit) {
    visit("head", options.head, "most frequent tokens, which every query scores; V/10 if null", at_least(1));
    visit("tail_tiers", options.tail_tiers, "tiers of equal size that the others make", at_least(1));
    visit("caution", options.caution, "share of the contexts in which a tier stays below its gate",
          between(0, 1));
    visit("context_sample", options.context_sample, "contexts that gates are learned from", at_least(1));
  }

  /// Calls visit(name, value, help[, limits]) for every option, in the order of their declaration.
  template <class Self, class Visit>
  static void visit(Self& options, Visit&& visit) {
    visit_index(options, visit);
    detail::visit_outside_sample(options, visit);
  }
};

/// Screens by frequency: candidates are the most frequent tokens, and the tiers of rarer ones that can still
/// hold one of the best.
class TOPKSOFTMAX_EXPORT AdaptiveSoftmaxScreener {
 public:
  /// Screens `layer` by tiers that adaptive/build.hpp has made or load() has read.
  AdaptiveSoftmaxScreener(SoftmaxLayer layer, std::shared_ptr<const detail::AdaptiveTiers> tiers)
      : layer_(std::move(layer)), tiers_(std::move(tiers)) {}

  /// The candidates of a query, in `workspace` until it is used again; see Screener.
  Candidates screen(const Query& query, Workspace& workspace) const;
  /// The backend's name.
  std::string_view name() const { return "adaptive"; }
  /// Bytes kept beside the layer.
  std::size_t index_bytes() const;
  /// How far log Z was off on contexts that were held out; nothing where the tiers' masses were not learned.
  std::optional<LogZError> log_z_error() const;
  /// Puts what the backend's load() reads into `out`.
  void save(IndexWriter& out) const;

 private:
  SoftmaxLayer layer_;
  std::shared_ptr<const detail::AdaptiveTiers> tiers_;
};

/// "Efficient softmax approximation for GPUs" (Grave, Joulin, Cissé, Grangier and Jégou, ICML 2017), its
/// inference on a layer that was trained without it. The paper also projects contexts to fewer dimensions for
/// the clusters of the tail, which a layer must be trained for, and chooses the clusters' sizes by a model of
/// costs; here all tiers have one size, and rows their d weights.
///
/// The head holds the most frequent tokens; the paper's head also has a vector for each tier of the tail,
/// whose product with h says whether the tier is worth a look. Here such a gate g_t·h + a_t is fitted to the
/// tier's largest logit over training contexts (least squares), and raised until a share `caution` of these
/// lie below it. A tier is scored when its gate reaches the k-th best logit so far. Without contexts a gate
/// is a proven bound instead, c_t·h + r_t·‖h‖ + the tier's largest bias, c_t the mean of its rows and r_t the
/// distance of the farthest and what float32 may round: nothing is lost, and little is saved. Contexts so
/// long that products might overflow are answered from all rows.
///
/// log Z is over the tokens scored; where contexts have taught the mass of each tier, it counts those that
/// were not scored too (Normalizer::learned; log_z_error() says how well for k = 1, and more tokens leave
/// less to it), unless a query forbids more than a few tokens (OutsideMass) or has another effort.
///
/// Effort: the tiers, the most frequent first, that are scored whatever their gates say, and one more; beyond
/// their number every token is scored.
///
/// Cost of a query: (tiers + head)·d multiply-adds, V/tiers·d for each tier scored, and tiers·d for the
/// masses. Index: 4·V + 4·tiers·d bytes, twice the latter with the masses.
class TOPKSOFTMAX_EXPORT AdaptiveSoftmax final : public ScreenedSoftmax<AdaptiveSoftmaxScreener> {
 public:
  /// Gates that are proven bounds. Cost: V·d. Throws Error for unusable options. Defined in
  /// adaptive/build.hpp, as the other forms are.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<AdaptiveSoftmax> build(
      SoftmaxLayer layer, const AdaptiveSoftmaxOptions& options = {});

  /// Gates, and the masses of the tiers, learned from contexts [N×d] like those to come. Cost:
  /// (context_sample + outside_sample)·d·(V + d) multiply-adds, 2·outside_sample·tiers·d² more, and
  /// outside_sample·V exponentials, in parallel on the executor's threads; d³/3 on one. Throws Error also for
  /// contexts of another dimension or that are not finite.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<AdaptiveSoftmax> build(
      SoftmaxLayer layer, const ConstRows& contexts, const AdaptiveSoftmaxOptions& options = {},
      const Executor& executor = default_executor());

  /// The same for contexts in plain memory; no contexts: the first form.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<AdaptiveSoftmax> build(
      SoftmaxLayer layer, const Contexts& contexts, const AdaptiveSoftmaxOptions& options,
      const Executor& executor = default_executor());

  std::optional<LogZError> log_z_error() const override {
    return usual_effort() == 0 ? screener().log_z_error() : std::nullopt;
  }

  /// The kind of its indexes.
  static constexpr std::string_view kind = "adaptive";

  /// The backend of an index that was saved for the same layer: see load_index().
  static std::unique_ptr<AdaptiveSoftmax> load(const IndexReader& in);

 private:
  using ScreenedSoftmax::ScreenedSoftmax;
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Products beyond this could leave the range of floats on the way.
inline constexpr double kLargestProduct = 1e30;

/// What one product of floats may lose where it is smaller than floats can be.
inline constexpr double kLostProduct = 0x1p-149;

/// The options with what they leave open chosen; throws Error for unusable ones.
inline AdaptiveSoftmaxOptions chosen_adaptive(AdaptiveSoftmaxOptions options, const SoftmaxLayer& layer) {
  options.head = options.head.value_or(std::max<std::size_t>(layer.vocab() / 10, 1));
  if (*options.head < 1 || *options.head > layer.vocab()) {
    throw bad_value("adaptive: head", *options.head, "between 1 and V = ", layer.vocab());
  }
  check_options("adaptive", options);
  return options;
}

/// The tokens by falling frequency, the head first, and a gate for each tier of the others.
class AdaptiveTiers {
 public:
  /// Defined in adaptive/build.hpp.
  TOPKSOFTMAX_BUILD_INLINE AdaptiveTiers(const SoftmaxLayer& layer, const AdaptiveSoftmaxOptions& options,
                                         const Contexts& contexts, const Executor& executor);

  /// Reads what save() has written.
  explicit AdaptiveTiers(const IndexReader& in) {
    AdaptiveSoftmaxOptions::visit_index(options_, in.options());
    in.check([&] { options_ = chosen_adaptive(options_, in.layer()); });
    const StoredArray<TokenId> ids = in.distinct_tokens("ids", {in.vocab()});
    tail_ = {in.offsets("starts", {tiers_of(in.vocab()) + 1}, in.vocab(), *options_.head), ids};
    gates_ =
        StoredRows(in.floats("gates", {size(), in.dim()}), in.dim(), in.floats("gates.offsets", {size()}));
    reach_ = in.floats("gates.reach", {size()});
    masses_ = OutsideMass::load(in, size());
    longest_ = longest_row();
  }

  void save(IndexWriter& out) const {
    AdaptiveSoftmaxOptions::visit_index(options_, out.options());
    out.array("ids", {vocab()}, tail_.values());
    out.array("starts", {tail_.starts().size()}, tail_.starts());
    out.array("gates", {gates_.count(), gates_.dim()}, gates_.weights());
    out.array("gates.offsets", {gates_.count()}, gates_.biases());
    out.array("gates.reach", {reach_.size()}, reach_);
    if (masses_) masses_->save(out);
  }

  /// Tiers of the tail.
  std::size_t size() const { return tail_.size(); }
  std::size_t vocab() const { return tail_.values().size(); }
  std::span<const TokenId> head() const { return tail_.values().span().first(*options_.head); }
  std::span<const TokenId> tier(std::size_t t) const { return tail_[t]; }

  /// What a product with h and its offset says, and how much ‖h‖ adds to it.
  kernels::Rows gates() const { return gates_.rows(); }
  double reach(std::size_t t) const { return static_cast<double>(reach_[t]); }

  /// What each tier adds to Σ exp(logit), where contexts have taught it: the groups are the tiers.
  const std::optional<OutsideMass>& masses() const { return masses_; }
  void set_masses(std::optional<OutsideMass> masses) {
    masses_ = std::move(masses);
    longest_ = longest_row();
  }

  /// Whether products with a context of this length stay within the floats, so that gates mean something.
  bool can_judge(double length) const { return length * longest_ < kLargestProduct; }

  std::size_t bytes() const {
    return tail_.bytes() + gates().bytes(size()) + reach_.span().size_bytes() +
           (masses_ ? masses_->bytes() : 0);
  }

 private:
  /// How many tiers the tail of so many tokens has.
  std::size_t tiers_of(std::size_t vocab) const {
    return std::min(options_.tail_tiers, vocab - *options_.head);
  }

  /// No gate is longer, no row of a tier that is bounded, no model of a tier's mass, and no row of int8
  /// before it is scaled (but for √d).
  double longest_row() const {
    double longest = 127.0;
    for (std::size_t t = 0; t < size(); ++t) {
      longest = std::max(longest, length_of(gates_, t) + reach(t));
      if (masses_) longest = std::max(longest, length_of(masses_->models(), t));
    }
    return longest;
  }

  static double length_of(const StoredRows& rows, std::size_t i) {
    const Eigen::Map<const Eigen::VectorXf> row(rows.weights().data() + i * rows.dim(),
                                                static_cast<Eigen::Index>(rows.dim()));
    return row.cast<double>().norm();
  }

  // What only the building constructor needs, defined with it.
  struct Gates;
  inline Eigen::VectorXd largest_of_tiers(const float* products) const;
  TOPKSOFTMAX_BUILD_INLINE void learn_gates(const SoftmaxLayer& layer, const Contexts& contexts,
                                            const Executor& executor, Gates& out) const;
  TOPKSOFTMAX_BUILD_INLINE void bound_gates(const SoftmaxLayer& layer, Gates& out) const;

  AdaptiveSoftmaxOptions options_;  ///< with nothing left open
  StoredLists<TokenId> tail_;       ///< the tokens of each tier, behind those of the head
  StoredRows gates_;                ///< [tiers×d]
  StoredArray<float> reach_;        ///< [tiers]
  std::optional<OutsideMass> masses_;
  double longest_ = 0.0;
};

/// Tokens that are scored, tier by tier, in the scratch, and the best of them.
class ScoredTiers {
 public:
  ScoredTiers(const SoftmaxLayer& layer, const Query& query, std::size_t room, AdaptiveScratch& scratch)
      : rows_(layer.rows()),
        query_(query),
        ids_(scratch.ids.get<TokenId>(room)),
        logits_(scratch.logits.get<float>(room)),
        best_(scratch.best.get<ScoredToken>(enough()), enough()) {}

  void add(std::span<const TokenId> tokens) {
    float* const logits = logits_ + count_;
    std::copy(tokens.begin(), tokens.end(), ids_ + count_);
    kernels::scan_gathered(rows_, tokens.data(), tokens.size(), query_.h, logits);
    count_ += tokens.size();
    if (query_.edits.allowed.empty()) return kernels::select(logits, tokens.data(), tokens.size(), best_);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (query_.edits.allows(tokens[i]) && logits[i] >= best_.threshold())
        best_.push({logits[i], tokens[i]});
    }
  }

  /// What the logits of tokens must reach to count.
  float threshold() const { return best_.threshold(); }

  void put(Candidates& candidates) const {
    candidates.ids = {ids_, count_};
    candidates.logits = logits_;
  }

 private:
  /// Logits are without the query's biases: of so many best at least k are as they will be.
  std::size_t enough() const { return query_.k + query_.edits.bias_count; }

  const kernels::Rows& rows_;
  const Query& query_;
  TokenId* ids_;
  float* logits_;
  std::size_t count_ = 0;
  kernels::TopKHeap best_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline Candidates AdaptiveSoftmaxScreener::screen(const Query& query, Workspace& workspace) const {
  const detail::AdaptiveTiers& tiers = *tiers_;
  const auto dim = static_cast<Eigen::Index>(layer_.dim());
  const double length =
      Eigen::Map<const Eigen::VectorXf>(query.h, dim).cast<double>().norm() * detail::kOutward;
  if (query.effort > tiers.size() + 1 || !tiers.can_judge(length)) return Candidates::all();
  const double lost = detail::kLostProduct * static_cast<double>(dim);
  const std::size_t always = query.effort == 0 ? 0 : query.effort - 1;
  const kernels::Rows gates = tiers.gates();
  detail::AdaptiveScratch& scratch = workspace.scratch<detail::AdaptiveScratch>();
  auto* const says = scratch.gates.get<float>(tiers.size());
  kernels::scan(gates, 0, tiers.size(), query.h, says);

  const std::optional<OutsideMass>& masses = tiers.masses();
  const bool counts = masses && always == 0 && OutsideMass::serves(query);
  auto* const outside = scratch.masses.get<float>(tiers.size());
  if (counts) kernels::scan(masses->models().rows(), 0, tiers.size(), query.h, outside);
  std::size_t left_out = 0;
  detail::ScoredTiers scored(layer_, query, tiers.vocab(), scratch);
  scored.add(tiers.head());
  for (std::size_t t = 0; t < tiers.size(); ++t) {
    const double product = static_cast<double>(says[t]) + tiers.reach(t) * length + lost;
    const double upper = kernels::highest_logit(layer_.transform(), product);
    if (t < always || upper >= static_cast<double>(scored.threshold())) {
      scored.add(tiers.tier(t));
    } else if (counts) {
      outside[left_out++] = outside[t];
    }
  }
  Candidates candidates;
  scored.put(candidates);
  candidates.screened = tiers.size();
  candidates.bytes_read = gates.bytes(tiers.size());
  if (left_out > 0) masses->count(kernels::log_sum_exp(outside, left_out), tiers.size(), candidates);
  return candidates;
}

inline std::size_t AdaptiveSoftmaxScreener::index_bytes() const {
  return tiers_->bytes();
}

inline std::optional<LogZError> AdaptiveSoftmaxScreener::log_z_error() const {
  return tiers_->masses() ? std::optional(tiers_->masses()->error()) : std::nullopt;
}

inline void AdaptiveSoftmaxScreener::save(IndexWriter& out) const {
  out.kind(AdaptiveSoftmax::kind);
  tiers_->save(out);
}

inline std::unique_ptr<AdaptiveSoftmax> AdaptiveSoftmax::load(const IndexReader& in) {
  auto tiers = std::make_shared<const detail::AdaptiveTiers>(in);
  return std::unique_ptr<AdaptiveSoftmax>(
      new AdaptiveSoftmax(in.layer(), AdaptiveSoftmaxScreener(in.layer(), std::move(tiers))));
}

}  // namespace TOPKSOFTMAX_NAMESPACE
