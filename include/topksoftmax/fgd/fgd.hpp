// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/fgd/fgd_index.hpp"
#include "topksoftmax/fgd/graph_search.hpp"
#include "topksoftmax/fgd/options.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/log_sum_exp.hpp"
#include "topksoftmax/outside_mass.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/screened_softmax.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Walks a small world graph over the rows towards the largest logits (FGD-I, Algorithm 2).
///
/// The graph is HNSW's over the transformed rows x̄ (see Ippt) in Euclidean distance. By Lemma 3.1 ρ² =
/// U² + 1 + ‖h‖² − 2·logit, so the row nearest to h̄ is the one with the largest logit (Theorem 3.2). The
/// search therefore compares logits, which cost half the arithmetic of distances, need no second copy of the
/// rows in float32, and lose nothing to the cancellation in ½(U² + 1 + ‖h‖² − ρ²). It reads an int8 copy of
/// the rows, which decides only where it goes: the logits of an answer are always the exact kernel's.
///
/// Cost of a query: `screened` (the paper's dist_cnt) · (d + 8) bytes, the links of ef_search rows, and
/// ef_search·d weights. Effort: ef_search (at least k). From V/16 on a search would cost more than it saves:
/// then, and where a mask leaves so few tokens that the search would have to go as far, every row is scored.
class TOPKSOFTMAX_EXPORT FgdScreener {
 public:
  /// Screens by a graph that fgd/build.hpp has made or load() has read.
  explicit FgdScreener(std::shared_ptr<const detail::FgdIndex> index) : index_(std::move(index)) {}

  /// The candidates of a query, in `workspace` until it is used again; see Screener.
  Candidates screen(const Query& query, Workspace& workspace) const;
  /// The backend's name.
  std::string_view name() const { return "fgd"; }
  /// Bytes kept beside the layer.
  std::size_t index_bytes() const;
  /// Puts what the backend's load() reads into `out`.
  void save(IndexWriter& out) const;

  /// Rows that links lead to from where searches start, directly or over others: all V, which the build sees
  /// to. Cost: O(V·M).
  std::size_t reachable() const;

 private:
  std::shared_ptr<const detail::FgdIndex> index_;
};

/// FGD, "Navigating with Graph Representations for Fast and Scalable Decoding of Neural Language Models"
/// (Zhang et al., NeurIPS 2018): the softmax layer as a nearest neighbour search in a small world graph.
///
/// Probabilities are the top-K softmax of FGD-I over the ef_search tokens found (Normalizer::candidates);
/// top_k_softmax_error() bounds how much too high they are. Where contexts have taught the mass of all other
/// tokens, log Z counts that too (Normalizer::learned; log_z_error() says how well), unless a query
/// forbids more than a few tokens (OutsideMass) or has another effort, or its k is above ef_search.
class TOPKSOFTMAX_EXPORT Fgd final : public ScreenedSoftmax<FgdScreener> {
 public:
  /// FGD-P, Algorithm 1: transforms the rows and inserts them one by one, in the order of their tokens, on
  /// one thread, so that a seed gives the same graph again (on processors of the same instruction set: it
  /// decides how distances are rounded). Searches start where HNSW's upper layers lead them. Cost:
  /// O(V·log V·M·ef_construction·d) at worst. The executor has nothing to do without contexts. Throws Error
  /// for unusable options. Defined in fgd/build.hpp.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<Fgd> build(SoftmaxLayer layer,
                                                             const FgdOptions& options = {},
                                                             const Executor& executor = default_executor());

  /// The same with searches that start at the tokens which are most often the first of contexts [N×d] like
  /// those to come, instead of HNSW's upper layers: fewer distances, and a better start. Cost: also
  /// min(N, context_sample)·V·d multiply-adds and, for the mass outside, min(N, outside_sample)·V·d with
  /// min(N, outside_sample)·V exponentials, on threads of the executor. Throws Error also for contexts of
  /// another dimension or that are not finite. Defined in fgd/build.hpp.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<Fgd> build(SoftmaxLayer layer, const ConstRows& contexts,
                                                             const FgdOptions& options = {},
                                                             const Executor& executor = default_executor());

  /// The same for contexts in plain memory; no contexts: the first form. Defined in fgd/build.hpp.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<Fgd> build(SoftmaxLayer layer, const Contexts& contexts,
                                                             const FgdOptions& options,
                                                             const Executor& executor = default_executor());

  /// The kind of its indexes.
  static constexpr std::string_view kind = "fgd";

  /// The backend of an index that was saved for the same layer: see load_index().
  static std::unique_ptr<Fgd> load(const IndexReader& in);

 private:
  using ScreenedSoftmax::ScreenedSoftmax;
};

/// How much too high the log-probabilities of a top-K softmax are at most (FGD §3.3, Appendix C).
///
/// S is the set of tokens summed over, Z_S = Σ_{i∈S} e^{s_i} and log_z = log Z_S; `outside` tokens are not in
/// S, none with a logit above `highest_outside`. Let p be the full softmax, p̂_i = e^{s_i}/Z_S for i in S and
/// 0 for all others, R = Z − Z_S the sum over the tokens outside. Then R ≤ outside·e^{highest_outside}, and
/// for every i in S
///   0 ≤ log p̂_i − log p_i = log(Z/Z_S) = log(1 + R/Z_S) ≤ log(1 + outside·e^{highest_outside − log_z}) = ε,
/// which is returned. In total variation, ½Σ|p̂ − p| = R/Z ≤ 1 − e^{−ε}: what S lacks is what its tokens
/// have too much. If S holds the K best of V tokens, the K-th logit may serve as highest_outside, and since
/// Z_S ≥ K·e^{s_K} then ε ≤ log(V/K).
double top_k_softmax_error(double log_z, double highest_outside, std::size_t outside);

/// The same for an answer over `vocab` tokens: 0 where its normaliser is exact, otherwise with its last logit
/// as highest_outside, so it holds if the answer's tokens are the exact top-k (which FGD finds with high
/// precision, but does not prove). Throws std::invalid_argument for an answer without tokens or
/// probabilities, and where log Z counts other tokens too (Normalizer::learned: see
/// FgdOptions::outside_sample).
double top_k_softmax_error(const TopK& answer, std::size_t vocab);

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Beyond this share of the vocabulary a search costs more than scoring every row.
inline constexpr std::size_t kWorthwhileShare = 16;

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline Candidates FgdScreener::screen(const Query& query, Workspace& workspace) const {
  const std::size_t ef = std::max(query.effort == 0 ? index_->ef_search() : query.effort, query.k);
  const std::size_t limit = index_->rows().count / detail::kWorthwhileShare;
  if (ef >= limit) return Candidates::all();

  detail::GraphSearch search(*index_, query, ef, limit, workspace);
  Candidates candidates;
  candidates.everything = !search.run();
  candidates.screened = search.scored();
  candidates.bytes_read = search.bytes_read();
  if (candidates.everything) return candidates;
  candidates.ids = search.found(limit);
  candidates.edited_apart = true;
  if (ef == index_->ef_search()) candidates.group = 0;
  return candidates;
}

inline std::size_t FgdScreener::index_bytes() const {
  return index_->bytes();
}

inline std::size_t FgdScreener::reachable() const {
  return index_->graph().reachable();
}

inline void FgdScreener::save(IndexWriter& out) const {
  out.kind(Fgd::kind);
  index_->save(out);
}

inline std::unique_ptr<Fgd> Fgd::load(const IndexReader& in) {
  return std::unique_ptr<Fgd>(new Fgd(in.layer(), FgdScreener(std::make_shared<const detail::FgdIndex>(in)),
                                      OutsideMass::load(in, 1)));
}

inline double top_k_softmax_error(double log_z, double highest_outside, std::size_t outside) {
  if (outside == 0) return 0.0;
  return kernels::log_add_exp(log_z, highest_outside + std::log(static_cast<double>(outside))) - log_z;
}

inline double top_k_softmax_error(const TopK& answer, std::size_t vocab) {
  if (answer.normalizer == Normalizer::exact) return 0.0;
  if (answer.size() == 0 || answer.normalizer != Normalizer::candidates) {
    throw std::invalid_argument("top_k_softmax_error: the answer has no tokens, or no top-K softmax");
  }
  const std::size_t summed = std::min(answer.work.candidates, vocab);
  return top_k_softmax_error(answer.log_z, static_cast<double>(answer.logits.back()), vocab - summed);
}

}  // namespace TOPKSOFTMAX_NAMESPACE
