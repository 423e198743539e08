// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/certified/bounded_softmax.hpp"
#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/certified/index.hpp"
#include "topksoftmax/certified/options.hpp"
#include "topksoftmax/certified/reaching_rows.hpp"
#include "topksoftmax/certified/survivors.hpp"
#include "topksoftmax/certified/threshold.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/exhaustive.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/query_batch.hpp"
#include "topksoftmax/screened_softmax.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

// From contexts to an answer, in the order of the proof below. Building (build.hpp; in building/ what no
// query needs):
//   options.hpp      what can be asked for
//   building/coordinates.hpp  Q and R, learned from contexts and rows
//   transform.hpp    Q and R as they are stored; c and h' of a context, how long and how wrong these are
//   building/row_projector.hpp  w' and w⊥ of these
//   building/context_coordinates.hpp  h' and h⊥ of contexts
//   building/similar_rows.hpp an order in which rows are similar
//   building/trials.hpp       what a prefix, its boxes and a tail let pass of some contexts
//   building/costs.hpp        what it costs to read these
//   building/code_choice.hpp  how many coordinates to have as codes, and what that makes of work
//   building/choice.hpp       the prefix, the width, boxes or none: what makes least work
//   radii.hpp        the terms that an estimate leaves out, and their weights κ
//   dither.hpp       what is random of codes, and how far that may lead
//   building/packing.hpp      ŵ and the radii of rows, written to
//   tails.hpp        ŵ₂ of all rows (building/tail_writer.hpp; kernels/prefix_tails.hpp), and
//   boxes.hpp        the boxes (building/box_maker.hpp; kernels/prefix_boxes.hpp); ŵ₁ is in rows/prefix_*.hpp
//   building/outside_position.hpp  α of log Z's estimate, and
//   building/learn_outside.hpp  what it is learned from
//   outside_estimate.hpp  what is learned of the rows that stay below a threshold
//   index.hpp        all that is kept and saved
// Asking:
//   bounds.hpp       estimate and radius of all rows, or of boxes first
//   bounds_view.hpp  numbers that have these
//   bounded_rows.hpp the rows of the boxes that are opened, or all
//   divided_bounds.hpp which bounds reach a threshold, and the sum of the others
//   reaching_rows.hpp  the same of rows: bounded and picked at once where boxes are opened
//   threshold.hpp    a logit that k tokens reach; raised_threshold.hpp: that k of all slices reach
//   context_regions.hpp  which models of it a context has, and
//   outside.hpp      the estimate of log Z between its bounds; outside_features.hpp: what it is linear in
//   survivors.hpp    the tokens whose bounds reach it, by tails too (kernels/tail_bounds-inl.h), and log Z of
//                    the others
//   upper_bounds.hpp what the logits of some rows do not exceed
//   tokens_reaching.hpp  all that may reach a logit, for draws
//   row_guesses.hpp  weights of all rows, guessed
//   deviation.hpp    the standard deviation of all logits, by row_covariance.hpp
//   proven_place.hpp whether a nucleus has a token, by bounds
//   row_sample.hpp   what all weights sum up to, from rows that are drawn by these guesses
//   sampled_mass.hpp log Z, and the place of a token, from such samples
//   bounded_softmax.hpp  a backend that answers by these
//   last_context.hpp whether a workspace still has the bounds of a context
//   certified.hpp    these steps in turn; certify.hpp: after another backend's answer
// What survives is scored and ranked as any candidates are (candidates.hpp).

namespace TOPKSOFTMAX_NAMESPACE {

/// Screens by upper bounds, so that no token of the exact top-k is ever dropped.
///
/// Proof. Q [M×d] has orthonormal rows (to within η, measured), R [M×M] is any matrix; c = Qh, h' = Rc
/// (transform.hpp). For each row w let w' [M] be the least-squares solution of QᵀRᵀw' ≈ w and w⊥ = w −
/// QᵀRᵀw' (building/row_projector.hpp). Then, identically,
///   w·h = w'·h' + w⊥·h = w'₁·h'₁ + w'₂·h'₂ + w⊥·h,         where 1 is the prefix, 2 the other coordinates.
/// w⊥ is orthogonal to Q's rows, so |w⊥·h| ≤ ‖w⊥‖·‖h⊥‖ with ‖h⊥‖² ≤ ‖h‖² − ‖c‖²/(1+η). The prefix is stored
/// as ŵ₁ (int8, building/packing.hpp) and asked with ĥ₁ (15 bits, bounds.hpp): w'₁·h'₁ = ŵ₁·ĥ₁ + (w'₁−ŵ₁)·h'₁
/// + ŵ₁·(h'₁−ĥ₁), and ŵ₁·ĥ₁ is computed in exact integers. What remains are sums of products a·x, a known at
/// build time, x of the query; with any weights κ_i > 0 and by Cauchy–Schwarz, Σ a_i·x_i ≤ √Σ(‖a_i‖/κ_i)² ·
/// √Σ(κ_i‖x_i‖)² = radius(row) · radius(context) (radii.hpp). Its terms are w'₂, w⊥, w'₁−ŵ₁, and one for all
/// roundings: N = max(‖w‖, ‖w'‖, ‖ŵ₁‖) times a bound E on the errors of c, h', ĥ₁ and of the exact kernel's
/// own dot product (d+2 roundings of Σ|w_j h_j| ≤ ‖w‖‖h‖), so the bound covers the float32 logit that
/// rescoring computes, not only the real one. Radii are rounded up. Hence logit ≤ estimate + radius, and a
/// row below the k-th best logit of any k tokens (threshold.hpp) is not among the k best (survivors.hpp).
/// Rows whose bounds overflow or are NaN are kept; contexts so long that the exact kernel itself might
/// overflow, ‖w‖‖h‖ + |b| > 1e38 for some row, are answered from all rows. Roundings are IEEE 754's: a thread
/// that flushes subnormal numbers to zero may lose rows with ‖w‖‖h‖ below about 1e-24.
///
/// Coordinates in codes: behind those in int8 the prefix may hold more of them, ŵ₂ in four bits
/// (rows/coder.hpp) for ĥ₂ in eight, with a step for every 32 (rows/context_rounding.hpp). w'₂·h'₂ = ŵ₂·ĥ₂ +
/// (w'₂−ŵ₂)·h'₂ + ŵ₂·(h'₂−ĥ₂), of which the first is computed in exact integers and the others are bounded by
/// a radius of their own, weighted likewise. What codes have rounded off, w'₂−ŵ₂, is part of a row's tail.
///
/// With a failure_probability δ codes are dithered (dither.hpp): ŵ₂ = step·(q + ½ − t), and Σ step·t_j·ĥ_j is
/// one number a context for all rows, rounded with the other errors in E. Of the k rows of the exact answer
/// (w'₂−ŵ₂)·h'₂ is then at most step·‖h'₂‖·√(ln(k/δ)/6) but with a probability of δ, plus, as lengths, what
/// lies beyond the codes' reach; of codes of four and of two bits together √Σ(step·‖h'₂‖)² takes the place of
/// step·‖h'₂‖. All other terms, and the bounds of tails, are proven: a row is lost only if its codes' error
/// is that large.
///
/// As many coordinates as dimensions: then w⊥ is what rounding leaves of it, nothing is to be known of c, and
/// RQ is one matrix B (ContextTransform), in int8, which meets ĥ, h in 15 bits: w·h = w'·Bĥ + w⊥·ĥ + w·(h−ĥ).
/// w' need not be the least-squares solution, nor B orthogonal: w⊥ := w − Bᵀw' is measured, and the last two
/// products are bounded by lengths. Rows need not store all of these coordinates.
///
/// Tails: rows that their prefixes let pass are bounded again by all coordinates that they store (tails.hpp).
/// Those behind the prefix are int8 too and meet ĥ₂ in 15 bits, with a step of its own, so of w'₂ only what
/// is not stored is a term of this radius, and w'−ŵ is one in place of w'₁−ŵ₁.
///
/// Boxes: if every ŵ₁ of a block's rows is in c ± e in its leading coordinates, one by one, then ŵ₁·ĥ₁ ≤ c·ĥ₁
/// + e·|ĥ₁| in these, so with the largest bias of the block and the largest radius of what they leave out no
/// logit in it is above that (boxes.hpp): a block below the threshold is not read, and its rows count in log
/// Z by this bound. Blocks are made of rows that are near to each other.
///
/// A scale and a soft cap (LogitTransform): the bounds are of products, and the threshold is turned back into
/// one that no product with such a logit is below (kernels::lowest_product). For log Z the bounds themselves
/// are transformed, outward: a tanh each.
///
/// The balanced coordinates: Q spans the leading directions of E[hhᵀ]/tr + WᵀW/tr, R turns and scales them so
/// that within it E[h'h'ᵀ] and E[w'w'ᵀ] are equal and diagonal (building/coordinates.hpp): no other choice
/// makes both tails shorter. Where coordinates are int4, those that rows have little of are stretched, and
/// the contexts' shrunk: the rounding costs less then.
///
/// Cost of a query: (M + M²/d)·d multiply-adds for h' (d², of bytes, where M = d), V·(prefix + 8) bytes of
/// the prefixes (with codes V·(int4_width/2 + 4) more, and V·(int2_width/4 + 4) where some are of two bits;
/// with boxes V·(box_width + 8)/8, and the prefixes of those that are opened), width − prefix bytes for each
/// of the rows left, then the weights of those left after that. QueryWork::screened counts the bounds: of
/// boxes, of rows by prefixes, and of those these left. Threads lent to a single query share the bounds.
///
/// log Z is an interval, from the same bounds. The estimate within it counts the rows outside by a model that
/// is linear in leading coordinates of h', in the products of the first 16 and in the bounds
/// (outside_features.hpp), learned by ridge regression from contexts (log_z_error() says how well), in each
/// of up to 16 regions of contexts (context_regions.hpp) for k = 1, for expected_k and for eight times that;
/// what is asked for between them is estimated between theirs. It knows as many coordinates as the contexts
/// can teach. Where they are too few (200 are enough: 96 of them choose the bounds) or do not show it to be
/// better, and under a mask that forbids more than a few tokens (OutsideMass), it counts the rows outside as
/// log Σ exp(logit) = low + α(high − low), with the α that was right for the median of some contexts at the
/// build, for expected_k; ½ without any.
class TOPKSOFTMAX_EXPORT CertifiedScreener {
 public:
  /// Screens `layer` by an index that certified/build.hpp has made or load() has read.
  CertifiedScreener(SoftmaxLayer layer, std::shared_ptr<const detail::CertifiedIndex> index)
      : layer_(std::move(layer)), index_(std::move(index)) {}

  /// The candidates of a query, in `workspace` until it is used again; see Screener.
  Candidates screen(const Query& query, Workspace& workspace) const;
  /// The backend's name.
  std::string_view name() const { return "certified"; }
  /// Bytes kept beside the layer.
  std::size_t index_bytes() const { return index_->bytes(); }
  /// Puts what the backend's load() reads into `out`.
  void save(IndexWriter& out) const;

  /// What was built: for tests and reports, and no promise.
  const detail::CertifiedIndex& index() const { return *index_; }

 private:
  SoftmaxLayer layer_;
  std::shared_ptr<const detail::CertifiedIndex> index_;
};

/// The exact top-k with a proof (TopK::certified), at a fraction of the full scan's reads.
///
/// Every answer is bit for bit that of `Exact`. log Z comes as a proven interval (Normalizer::interval). With
/// CertifiedOptions::failure_probability an answer is that of `Exact` with a TopK::confidence instead, where
/// less is read for it, and log Z is an estimate from the bounds (Normalizer::low_rank).
/// Batches whose prefixes outgrow the second cache read them once for eight contexts. Effort: ignored. Where
/// the bounds rule out too little, the whole vocabulary is scanned: never wrong, only slower. Prior art:
/// FEXIPRO (SIGMOD'17), LEMP (TODS'16).
class TOPKSOFTMAX_EXPORT Certified final : public detail::BoundedSoftmax<ScreenedSoftmax<CertifiedScreener>> {
 public:
  // Defined in certified/build.hpp:

  /// Learns the coordinates from contexts [N×d]; without any, from W alone (its SVD), and reads all of them:
  /// little more than half of what an int8 scan does where d is some hundreds, as much where it is below 64.
  /// Contexts that are equal count as one. Cost, in multiply-adds, of at most context_sample of the contexts:
  /// (V + N)·d² and a few eigenvectors' problems of d³ for the coordinates and the covariance of the rows;
  /// 3·V·d·width (2·V·d² where width is d) to place the rows in them, once, or up to five times where options
  /// are left open; to choose these, 96 contexts, at most half of all, which the coordinates are not learned
  /// from: up to four times V·d for each, and 16,384 rows met in each prefix that is tried; and to learn the
  /// estimate of log Z, outside_sample·V·d, but no more than the larger of 2³⁷ and 1,000·V·d. Memory beside
  /// layer and index: 8·d bytes for each context sampled, about 120·d² bytes, 120·V, up to 12·(d + 138) bytes
  /// for each of outside_sample, some thousand rows in float32 or float64 a thread. The same bits for every
  /// executor. Throws Error for contexts of another dimension or not finite, and for unusable options.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<Certified> build(
      SoftmaxLayer layer, const ConstRows& contexts, const CertifiedOptions& options = {},
      const Executor& executor = default_executor());

  /// The same without contexts.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<Certified> build(
      SoftmaxLayer layer, const CertifiedOptions& options = {},
      const Executor& executor = default_executor());

  /// The same for contexts in plain memory.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<Certified> build(
      SoftmaxLayer layer, const Contexts& contexts, const CertifiedOptions& options,
      const Executor& executor = default_executor());

  /// The kind of its indexes.
  static constexpr std::string_view kind = "certified";

  /// The backend of an index that was saved for the same layer: see load_index().
  static std::unique_ptr<Certified> load(const IndexReader& in);

  std::optional<LogZError> log_z_error() const override { return screener().index().outside.error(); }

 private:
  Certified(const SoftmaxLayer& layer, std::shared_ptr<const detail::CertifiedIndex> index)
      : BoundedSoftmax(layer, CertifiedScreener(layer, std::move(index))) {}

  const detail::CertifiedIndex& bounds() const override { return screener().index(); }

  inline void do_query(const Query& query, Workspace& workspace, TopK& answer) const override;
  inline void do_query_batch(const QueryBatch& batch, Workspace& workspace, TopK* answers) const override;
  std::size_t shared_bytes() const override { return screener().index().bytes_shared(); }
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Leaves fewer of the rows that reach a threshold from few rows, by a better one, where these are many. Adds
/// to bytes_read what that takes.
inline void raise_threshold(const BoundedQuery& bounded, ReachingRows& rows, std::size_t& bytes_read) {
  // More rows than this that their prefixes let pass speak for a poor threshold.
  const std::size_t tolerable = 64 + 32 * bounded.query.k;
  if (rows.count <= tolerable) return;
  const float better = kth_of_best(bounded, rows, bytes_read);
  if (better > rows.threshold) keep_reaching(bounded, better, rows);
}

/// The candidates of a context that has been bounded.
inline Candidates screen_bounded(const BoundedQuery& bounded) {
  std::size_t bytes_read = 0;
  const float threshold = bounded.bounds.usable ? threshold_from_best(bounded, bytes_read) : kNoThreshold;
  if (!can_rule_out(bounded, threshold)) return bounded_candidates(bounded);
  ReachingRows rows = rows_reaching(bounded, threshold);
  if (bounded.index.has_boxes()) raise_threshold(bounded, rows, bytes_read);
  Candidates candidates = candidates_among(bounded, rows, bounded.index.rows());
  candidates.bytes_read += bytes_read;
  return candidates;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline Candidates CertifiedScreener::screen(const Query& query, Workspace& workspace) const {
  if (!detail::is_worth_bounding(query, *index_)) return Candidates::all();
  return detail::screen_bounded(detail::bounded(layer_, *index_, query, workspace));
}

inline void CertifiedScreener::save(IndexWriter& out) const {
  out.kind(Certified::kind);
  index_->save(out);
}

inline void Certified::do_query(const Query& query, Workspace& workspace, TopK& answer) const {
  if (query.fall_back && !detail::is_worth_bounding(query, screener().index())) {
    return answer_from_all(layer(), query, workspace, answer);
  }
  ScreenedSoftmax::do_query(query, workspace, answer);
}

inline void Certified::do_query_batch(const QueryBatch& batch, Workspace& workspace, TopK* answers) const {
  const detail::CertifiedIndex& index = screener().index();
  const auto is_worth_it = [&](const Query& query) { return detail::is_worth_bounding(query, index); };
  if (!batch.any_of(is_worth_it)) return answer_batch_from_all(layer(), batch, workspace, answers);
  detail::ContextBounds bounds[kernels::kPrefixBatch];
  const std::size_t together = index.shares_scans() ? kernels::kPrefixBatch : 1;
  for (std::size_t first = 0; first < batch.size(); first += together) {
    const QueryBatch some = batch.part(first, std::min(together, batch.size() - first));
    detail::bound_batch(index, some, {bounds, some.size()}, workspace);
    detail::share_in_workspaces(workspace, some.size(), [&](std::size_t q, Workspace& own) {
      const Query query = some[q];
      TopK& answer = answers[first + q];
      if (!is_worth_it(query)) return answer_from_all(layer(), query, own, answer);
      const Candidates candidates = detail::screen_bounded({layer(), index, query, bounds[q], own});
      answer_from_candidates(layer(), query, candidates, own, answer);
    });
  }
}

inline std::unique_ptr<Certified> Certified::load(const IndexReader& in) {
  return std::unique_ptr<Certified>(
      new Certified(in.layer(), std::make_shared<const detail::CertifiedIndex>(in)));
}

}  // namespace TOPKSOFTMAX_NAMESPACE
