// SPDX-License-Identifier: Apache-2.0
#pragma once

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
#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/learning/outside_option.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/option_limits.hpp"
#include "topksoftmax/outside_mass.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/query_batch.hpp"
#include "topksoftmax/screened_softmax.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"
#include "topksoftmax/wta/token_marks.hpp"
#include "topksoftmax/wta/wta_hash.hpp"
#include "topksoftmax/wta/wta_index.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What WtaLshScreener works in, beside the index.
struct WtaLshScratch {
  ScratchBuffer shared;  ///< a bit a token, of the whole batch
  ScratchBuffer marks;   ///< likewise, of one context
  ScratchBuffer own;     ///< tokens of each context
  ScratchBuffer ids;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

/// Options of WtaLsh. What builds throws Error for values out of their ranges.
struct WtaLshOptions {
  /// {K, u, W}.
  WtaHashOptions hash = {};
  /// t, bands in which a candidate's code is the context's: 1 … W.
  std::size_t threshold = 5;
  /// T, most frequent tokens that are candidates of every context; V/10 unless given.
  std::optional<std::size_t> top_frequent = std::nullopt;
  /// Contexts, evenly spaced ones, that the mass outside of a context's own list is learned from
  /// (Normalizer::learned); 0, or fewer than 100 contexts: it is not.
  std::size_t outside_sample = 5000;
  /// How often each token occurred in the training text [V], to tell which are frequent. Empty: the layer's
  /// biases tell, or if it has none, the lengths of its rows.
  std::vector<std::int64_t> counts = {};

  /// Told how far the build is; may be empty.
  TrainingProgress progress = {};

  /// Calls visit(name, value, help[, limits]) for every option, in the order of their declaration.
  template <class Self, class Visit>
  static void visit(Self& options, Visit&& visit) {
    visit("hash", options.hash);
    visit("threshold", options.threshold, "t, bands that a candidate must share with the context",
          at_least(1));
    visit("top_frequent", options.top_frequent, "T, most frequent tokens in every list; V/10 if null");
    detail::visit_outside_sample(options, visit);
  }
};

/// Screens by winner-take-all hashes: candidates are the tokens whose rows share a context's band code in at
/// least t of W bands, and the T most frequent tokens.
class TOPKSOFTMAX_EXPORT WtaLshScreener {
 public:
  /// `frequent` [V rounded up to whole words] has a bit for each of the T most frequent tokens.
  WtaLshScreener(std::shared_ptr<const detail::WtaIndex> index, std::size_t threshold,
                 std::size_t top_frequent, StoredArray<std::uint64_t> frequent)
      : index_(std::move(index)),
        threshold_(threshold),
        top_frequent_(top_frequent),
        frequent_(std::move(frequent)) {}
  /// Reads what save() has written.
  explicit WtaLshScreener(const IndexReader& in);

  /// The candidates of a query, in `workspace` until it is used again; see Screener.
  Candidates screen(const Query& query, Workspace& workspace) const;

  /// One list for all contexts of a batch.
  struct Shared {
    Candidates candidates;               ///< the union of the contexts' lists
    std::span<const std::uint64_t> own;  ///< [batch], the number of allowed tokens in each one's list
  };

  /// For queries with the same options.
  Shared screen_batch(const QueryBatch& batch, Workspace& workspace) const;

  /// The backend's name.
  std::string_view name() const { return "wta-lsh"; }
  /// Bytes kept beside the layer.
  std::size_t index_bytes() const;
  /// Puts what the backend's load() reads into `out`.
  void save(IndexWriter& out) const;

 private:
  std::shared_ptr<const detail::WtaIndex> index_;
  std::size_t threshold_ = 0;
  std::size_t top_frequent_ = 0;
  StoredArray<std::uint64_t> frequent_;  ///< the T most frequent tokens, a bit each
};

/// "Fast Locality Sensitive Hashing for Beam Search on GPU" (Shi, Xu and Knight), on a CPU.
///
/// Hashes (§4.2.1) compare the order of h's values with that of each row's; the bias takes no part in that,
/// so a token that lives by its bias is found by its frequency or not at all. Look-up (§4.2.2): a cuckoo
/// table a band from code to span of tokens, and a counter a token. A batch shares its candidates (equation
/// 3), `shared_by` of its contexts at a time, from the first on: they are the union of these contexts' lists,
/// scored for all of them by one product. So a context of a batch competes among at least the tokens that it
/// has alone, and perhaps more: its answer is the same for any number of threads, but depends on the contexts
/// that it shares with. log Z is over the candidates. Where contexts have taught the mass of all other
/// tokens, that of a context which shares with no other, forbids no more than a few (OutsideMass) and has no
/// other effort counts that too (Normalizer::learned).
///
/// Effort e: hits asked for, counted down from W: t = W + 1 − e; from W + 1 on t = 0, which is every token.
///
/// Cost of a query: W·u·K comparisons, 2W probes, an increment for every hit (about V·W/K^u, more for
/// context and rows that are like each other), V/64 words to collect, and candidates·d weights; for a batch
/// these weights once for 16 contexts. Index: 4·W·V bytes, and 27 for every code of every band.
class TOPKSOFTMAX_EXPORT WtaLsh final : public ScreenedSoftmax<WtaLshScreener> {
 public:
  /// Cost: V·W·(u·K + log V), in parallel on the executor's threads. Throws Error for unusable options.
  /// Defined in wta/build.hpp.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<WtaLsh> build(
      SoftmaxLayer layer, const WtaLshOptions& options = {}, const Executor& executor = default_executor());

  /// The same with the mass outside of a context's list learned from contexts [N×d]. Cost: also min(N,
  /// outside_sample)·V·d multiply-adds, min(N, outside_sample)·V exponentials, and the queries. Throws Error
  /// also for contexts of another dimension or that are not finite. Defined in wta/build.hpp.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<WtaLsh> build(
      SoftmaxLayer layer, const ConstRows& contexts, const WtaLshOptions& options = {},
      const Executor& executor = default_executor());

  /// The same for contexts in plain memory; no contexts: the first form. Defined in wta/build.hpp.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<WtaLsh> build(
      SoftmaxLayer layer, const Contexts& contexts, const WtaLshOptions& options,
      const Executor& executor = default_executor());

  /// The kind of its indexes.
  static constexpr std::string_view kind = "wta-lsh";

  /// Contexts of a batch that share candidates, and are answered on one thread: those of a large beam.
  static constexpr std::size_t shared_by = 64;

  /// The backend of an index that was saved for the same layer: see load_index().
  static std::unique_ptr<WtaLsh> load(const IndexReader& in);

 private:
  using ScreenedSoftmax::ScreenedSoftmax;

  void do_query_batch(const QueryBatch& batch, Workspace& workspace, TopK* answers) const override;
  std::size_t answered_together() const override { return shared_by; }
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Throws Error for a threshold that no token reaches, or all do.
TOPKSOFTMAX_EXPORT void check_threshold(std::size_t threshold, std::size_t bands);

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline Candidates WtaLshScreener::screen(const Query& query, Workspace& workspace) const {
  Candidates candidates = screen_batch(QueryBatch(query), workspace).candidates;
  candidates.edited_apart = !query.edits.allowed.empty();
  if (!candidates.everything && query.effort == 0) candidates.group = 0;
  return candidates;
}

inline WtaLshScreener::Shared WtaLshScreener::screen_batch(const QueryBatch& batch,
                                                           Workspace& workspace) const {
  const Query query = batch[0];
  const std::size_t bands = index_->bands();
  std::size_t threshold = threshold_;
  if (query.effort != 0) threshold = query.effort > bands ? 0 : bands + 1 - query.effort;
  if (threshold == 0 || top_frequent_ == index_->vocab()) return {Candidates::all(), {}};

  const std::size_t words = frequent_.size();
  detail::WtaLshScratch& scratch = workspace.scratch<detail::WtaLshScratch>();
  const std::span<std::uint64_t> shared(scratch.shared.get<std::uint64_t>(words), words);
  const std::span<std::uint64_t> marks(scratch.marks.get<std::uint64_t>(words), words);
  const std::span<std::uint64_t> own(scratch.own.get<std::uint64_t>(batch.size()), batch.size());
  std::fill(shared.begin(), shared.end(), 0);
  Candidates candidates;
  index_->for_each_context(batch.contexts(), batch.stride(), batch.size(), workspace,
                           [&](std::size_t q, const detail::WtaIndex::Hits& hits) {
                             std::copy(frequent_.begin(), frequent_.end(), marks.begin());
                             own[q] = kernels::mark_reaching(
                                 hits.of_token, words, static_cast<std::uint16_t>(threshold), marks.data());
                             if (!query.edits.allowed.empty())
                               own[q] = detail::keep_allowed(query.edits.allowed, marks);
                             for (std::size_t word = 0; word < words; ++word) shared[word] |= marks[word];
                             candidates.screened += hits.total;
                             candidates.bytes_read += index_->bytes_read(hits);
                           });
  candidates.screened /= batch.size();
  candidates.bytes_read /= batch.size();
  auto* const ids = scratch.ids.get<TokenId>(index_->vocab());
  candidates.ids = {ids, detail::collect_tokens(shared, ids)};
  return {candidates, own};
}

inline std::size_t WtaLshScreener::index_bytes() const {
  return index_->bytes() + frequent_.size() * sizeof(frequent_[0]);
}

inline std::unique_ptr<WtaLsh> WtaLsh::load(const IndexReader& in) {
  return std::unique_ptr<WtaLsh>(new WtaLsh(in.layer(), WtaLshScreener(in), OutsideMass::load(in, 1)));
}

inline void WtaLsh::do_query_batch(const QueryBatch& batch, Workspace& workspace, TopK* answers) const {
  if (!batch.same_options()) return answer_one_by_one(batch, workspace, answers);
  auto [candidates, own] = screener().screen_batch(batch, workspace);
  answer_batch_from_candidates(layer(), batch, candidates, workspace, answers);
  const std::size_t k = batch[0].k;
  if (candidates.everything || candidates.ids.size() < k) return;
  // A context with fewer than k candidates of its own is answered from the whole vocabulary, as it is alone.
  candidates.everything = true;
  for (std::size_t q = 0; q < batch.size(); ++q) {
    if (own[q] < k) answer_from_candidates(layer(), batch[q], candidates, workspace, answers[q]);
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE

#if defined(TOPKSOFTMAX_HEADER_ONLY)
#include "topksoftmax/wta/wta_lsh-inl.hpp"
#endif
