// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "topksoftmax/contexts.hpp"
#include "topksoftmax/export.hpp"
#include "topksoftmax/screened_softmax.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {

/// In which coordinates contexts and rows are bounded. Every choice is exact and reads as much for a prefix;
/// they differ in how many rows a prefix leaves. Q and R are those of CertifiedScreener.
enum class BoundCoordinates : std::uint8_t {
  /// Those in which E[h'h'ᵀ] and E[w'w'ᵀ] are equal and diagonal: both tails are short. Cost to build: one
  /// eigenvectors' problem in d dimensions, three in `width`.
  balanced,
  /// The leading eigenvectors of E[hhᵀ], unscaled (R = I): the context's tail is as short as it can be, the
  /// rows' are not. One eigenvectors' problem in d dimensions. Needs contexts.
  contexts,
  /// W's singular vectors, its singular values on the context's side (R = Σ): FEXIPRO's transformation
  /// (SIGMOD'17, §3). Knows nothing of the contexts. One eigenvectors' problem in d dimensions, one in
  /// `width`.
  rows,
};

/// Whether sixteen similar rows at a time are bounded as one first, by a box around their coordinates. Where
/// contexts differ in few directions most boxes stay closed, and their rows unread; where they differ in
/// many, nearly all are opened and only cost.
enum class BoundBoxes : std::uint8_t {
  automatic,  ///< where that makes less work for the contexts
  never,
  always,
};

struct CertifiedOptions {
  /// Coordinates of every row that the first scan reads: a multiple of 4, at most `width`; 0 chooses by
  /// counting, on the contexts, the work that each choice would make.
  std::size_t prefix = 0;
  /// Coordinates in all, 4 to 4096; what a row and a context have beyond them counts by its length alone. 0:
  /// as many as lie in one cache line behind the prefix, or more where the contexts, or W without any, have
  /// so many directions that fewer would leave many rows to score.
  std::size_t width = 0;
  /// Contexts that the coordinates are learned from, evenly spaced ones of those given: at least 1.
  std::size_t context_sample = 20000;
  /// The k that the prefix is chosen, and log Z estimated, for: at least 1.
  std::size_t expected_k = 5;
  /// `rows` and `contexts` are there to be compared with.
  BoundCoordinates coordinates = BoundCoordinates::balanced;
  BoundBoxes boxes = BoundBoxes::automatic;
};

class PrefixIndex;

/// Screens by upper bounds, so that no token of the exact top-k is ever dropped.
///
/// Proof. Q [M×d] has orthonormal rows (to within η, measured), R [M×M] is any matrix; c = Qh, h' = Rc. For
/// each row w let w' [M] be the least-squares solution of QᵀRᵀw' ≈ w and w⊥ = w − QᵀRᵀw'. Then, identically,
///   w·h = w'·h' + w⊥·h = w'₁·h'₁ + w'₂·h'₂ + w⊥·h,         where 1 is the prefix, 2 the other coordinates.
/// w⊥ is orthogonal to Q's rows, so |w⊥·h| ≤ ‖w⊥‖·‖h⊥‖ with ‖h⊥‖² ≤ ‖h‖² − ‖c‖²/(1+η). The prefix is stored
/// as ŵ₁ (int8) and asked with ĥ₁ (15 bits): w'₁·h'₁ = ŵ₁·ĥ₁ + (w'₁−ŵ₁)·h'₁ + ŵ₁·(h'₁−ĥ₁), and ŵ₁·ĥ₁ is
/// computed in exact integers. What remains are sums of products a·x, a known at build time, x of the query;
/// with any weights κ_i > 0 and by Cauchy–Schwarz, Σ a_i·x_i ≤ √Σ(‖a_i‖/κ_i)² · √Σ(κ_i‖x_i‖)² = radius(row) ·
/// radius(context). Its terms are w'₂, w⊥, w'₁−ŵ₁, and one for all roundings: N = max(‖w‖, ‖w'‖, ‖ŵ₁‖) times
/// a bound E on the errors of c, h', ĥ₁ and of the exact kernel's own dot product (d+2 roundings of Σ|w_j
/// h_j| ≤ ‖w‖‖h‖), so the bound covers the float32 logit that rescoring computes, not only the real one.
/// Radii are rounded up. Hence logit ≤ estimate + radius, and a row below the k-th best logit of any k tokens
/// is not among the k best. Whatever overflows or is no number is kept; contexts so long that the exact
/// kernel itself might overflow, ‖w‖‖h‖ + |b| > 1e38 for some row, are answered from all rows. Roundings are
/// IEEE 754's: a thread that flushes subnormal numbers to zero may lose rows with ‖w‖‖h‖ below about 1e-24.
///
/// Boxes: if every ŵ₁ of a block's rows is in c ± e, coordinate by coordinate, then ŵ₁·ĥ₁ ≤ c·ĥ₁ + e·|ĥ₁|, so
/// with the largest bias and radius of the block no logit in it is above that: a block below the threshold is
/// not read, and its rows count in log Z by this bound. Blocks are made of rows that are near to each other.
///
/// The balanced coordinates: Q spans the leading directions of E[hhᵀ]/tr + WᵀW/tr, R turns and scales them so
/// that within it E[h'h'ᵀ] and E[w'w'ᵀ] are equal and diagonal: no other choice makes both tails shorter.
///
/// Cost of a query: (M + M²/d)·d multiply-adds for h', V·(prefix + 8) bytes of the prefixes (with boxes, an
/// eighth of that and those of the boxes that are opened), M − prefix bytes for each of the rows left,
/// then the weights of those left after that. QueryWork::screened counts the bounds: those of boxes, of rows
/// by their prefixes, and of those that these left.
///
/// log Z is an interval, from the same bounds. The estimate within it counts the rows outside as log Σ
/// exp(logit) = low + α(high − low), with the α that was right for the median of some contexts at the build,
/// for expected_k; ½ without any.
class TOPKSOFTMAX_EXPORT CertifiedScreener {
 public:
  CertifiedScreener(SoftmaxLayer layer, std::shared_ptr<const PrefixIndex> index)
      : layer_(std::move(layer)), index_(std::move(index)) {}

  Candidates screen(const Query& query, Workspace& workspace) const;
  std::string_view name() const { return "certified"; }
  std::size_t index_bytes() const;
  void save(IndexWriter& out) const;

  const PrefixIndex& index() const { return *index_; }

 private:
  SoftmaxLayer layer_;
  std::shared_ptr<const PrefixIndex> index_;
};

/// The exact top-k with a proof (TopK::certified), at a fraction of the full scan's reads.
///
/// Every answer is bit for bit that of `Exact`. log Z comes as a proven interval (Normalizer::interval).
/// Batches whose prefixes outgrow the second cache read them once for four contexts. Effort: ignored. Where
/// the bounds rule out too little, the whole vocabulary is scanned: never wrong, only slower. Prior art:
/// FEXIPRO (SIGMOD'17), LEMP (TODS'16).
class TOPKSOFTMAX_EXPORT Certified final : public ScreenedSoftmax<CertifiedScreener> {
 public:
  /// Learns the coordinates from contexts [N×d]; without any, from W alone (its SVD), which prunes less.
  /// Cost: O(d³ + V·d·width). Throws Error for contexts of another dimension or that are not finite, and for
  /// unusable options.
  static std::unique_ptr<Certified> build(SoftmaxLayer layer, const ConstRows& contexts,
                                          const CertifiedOptions& options = {}) {
    return build(std::move(layer), Contexts::of(contexts), options);
  }

  /// The same without contexts.
  static std::unique_ptr<Certified> build(SoftmaxLayer layer, const CertifiedOptions& options = {}) {
    const Contexts none = Contexts::none(layer.dim());
    return build(std::move(layer), none, options);
  }

  /// The same for contexts in plain memory.
  static std::unique_ptr<Certified> build(SoftmaxLayer layer, const Contexts& contexts,
                                          const CertifiedOptions& options);

  /// The backend whose index save() has written for the same layer: see load_index(), which throws as this
  /// does; here Error also for an index of another kind.
  static std::unique_ptr<Certified> load(const std::filesystem::path& path, SoftmaxLayer layer);

  /// The same from a file that is open.
  static std::unique_ptr<Certified> load(const IndexReader& in);

  bool certifies() const override { return true; }

 private:
  Certified(const SoftmaxLayer& layer, std::shared_ptr<const PrefixIndex> index)
      : ScreenedSoftmax(layer, CertifiedScreener(layer, std::move(index))) {}

  void do_query(const Query& query, Workspace& workspace, TopK& answer) const override;
  void do_query_batch(const Query& query, std::size_t stride, std::size_t batch, Workspace& workspace,
                      TopK* answers) const override;
};

}  // namespace topksoftmax
