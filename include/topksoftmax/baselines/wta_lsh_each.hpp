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

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/check_options.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/error.hpp"
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
#include "topksoftmax/screened_softmax.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"
#include "topksoftmax/wta/token_marks.hpp"
#include "topksoftmax/wta/wta_hash.hpp"
#include "topksoftmax/wta/wta_index.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What WtaLshEachScreener works in, beside the index.
struct WtaEachScratch {
  ScratchBuffer marks;  ///< a bit a token
  ScratchBuffer ids;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

/// Options of WtaLshEach. What builds throws Error for values out of their ranges.
struct WtaLshEachOptions {
  /// {K, u, W}.
  WtaHashOptions hash = {};
  /// Tokens that a context's list has at most: those that share the most band codes with it. At least 1; V/10
  /// unless given.
  std::optional<std::size_t> top_collisions = std::nullopt;
  /// Contexts, evenly spaced ones, that the mass outside of the list is learned from
  /// (Normalizer::learned); 0, or fewer than 100 contexts: it is not.
  std::size_t outside_sample = 5000;

  /// Told how far the build is; may be empty.
  TrainingProgress progress = {};

  /// Calls visit(name, value, help[, limits]) for every option, in the order of their declaration.
  template <class Self, class Visit>
  static void visit(Self& options, Visit&& visit) {
    visit("hash", options.hash);
    visit("top_collisions", options.top_collisions, "tokens that a list has at most; V/10 if null",
          at_least(1));
    detail::visit_outside_sample(options, visit);
  }
};

/// Screens by winner-take-all hashes: candidates are the tokens whose rows share a context's band codes
/// most often, of equals the lower ids; none that shares no code.
class TOPKSOFTMAX_EXPORT WtaLshEachScreener {
 public:
  /// `top_collisions` as in WtaLshEachOptions.
  WtaLshEachScreener(std::shared_ptr<const detail::WtaIndex> index, std::size_t top_collisions)
      : index_(std::move(index)), top_collisions_(top_collisions) {}
  /// Reads what save() has written.
  explicit WtaLshEachScreener(const IndexReader& in);

  /// The candidates of a query, in `workspace` until it is used again; see Screener.
  Candidates screen(const Query& query, Workspace& workspace) const;
  /// The backend's name.
  std::string_view name() const { return "wta-lsh-each"; }
  /// Bytes kept beside the layer.
  std::size_t index_bytes() const;
  /// Puts what the backend's load() reads into `out`.
  void save(IndexWriter& out) const;

 private:
  std::shared_ptr<const detail::WtaIndex> index_;
  std::size_t top_collisions_;
};

/// The per-vector form of WtaLsh, after "Deep Networks with Large Output Spaces" (Vijayanarasimhan, Shlens,
/// Monga and Yagnik, 2015): each context of a batch has a list of its own, the top collisions instead of a
/// threshold, and no frequent tokens. The hash and its index are those of WtaLsh (their tables are trees).
///
/// log Z is over the list; where contexts have taught the mass of all other tokens, it counts that
/// too (Normalizer::learned; log_z_error() says how well), unless a query forbids more than a few tokens
/// (OutsideMass) or has another effort.
///
/// Effort: top_collisions; from V on every token is scored.
///
/// Cost of a query: that of a single one of WtaLsh, and log W passes over V counters. Index: that of WtaLsh.
class TOPKSOFTMAX_EXPORT WtaLshEach final : public ScreenedSoftmax<WtaLshEachScreener> {
 public:
  /// Cost: V·W·(u·K + log V), in parallel on the executor's threads. Throws Error for unusable options.
  /// Defined in baselines/build_wta_lsh_each.hpp.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<WtaLshEach> build(
      SoftmaxLayer layer, const WtaLshEachOptions& options = {},
      const Executor& executor = default_executor());

  /// The same with the mass outside of the list learned from contexts [N×d]. Cost: also min(N,
  /// outside_sample)·V·d multiply-adds, min(N, outside_sample)·V exponentials, and the queries. Throws Error
  /// also for contexts of another dimension or that are not finite. Defined in
  /// baselines/build_wta_lsh_each.hpp.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<WtaLshEach> build(
      SoftmaxLayer layer, const ConstRows& contexts, const WtaLshEachOptions& options = {},
      const Executor& executor = default_executor());

  /// The same for contexts in plain memory; no contexts: the first form. Defined in
  /// baselines/build_wta_lsh_each.hpp.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<WtaLshEach> build(
      SoftmaxLayer layer, const Contexts& contexts, const WtaLshEachOptions& options,
      const Executor& executor = default_executor());

  /// The kind of its indexes.
  static constexpr std::string_view kind = "wta-lsh-each";

  /// The backend of an index that was saved for the same layer: see load_index().
  static std::unique_ptr<WtaLshEach> load(const IndexReader& in);

 private:
  using ScreenedSoftmax::ScreenedSoftmax;
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Makes `marks` the allowed tokens that are hit at least `threshold` times; returns how many they are.
inline std::size_t mark(const WtaIndex::Hits& hits, std::size_t threshold, const AllowedTokens& allowed,
                        std::span<std::uint64_t> marks) {
  std::fill(marks.begin(), marks.end(), 0);
  const std::size_t marked = kernels::mark_reaching(hits.of_token, marks.size(),
                                                    static_cast<std::uint16_t>(threshold), marks.data());
  return allowed.empty() ? marked : keep_allowed(allowed, marks);
}

/// The highest threshold up to `bands` that at least `wanted` allowed tokens reach, or 1.
inline std::size_t threshold_for(std::size_t wanted, std::size_t bands, const WtaIndex::Hits& hits,
                                 const AllowedTokens& allowed, std::span<std::uint64_t> marks) {
  std::size_t low = 1;
  std::size_t high = bands;
  while (low < high) {
    const std::size_t middle = (low + high + 1) / 2;
    if (mark(hits, middle, allowed, marks) >= wanted) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

/// Tokens that are hit at least `threshold` times, without the last of those hit no more often that are too
/// many.
inline std::span<const TokenId> first_wanted(std::span<TokenId> ids, std::size_t wanted,
                                             std::size_t threshold, const WtaIndex::Hits& hits) {
  std::size_t surplus = ids.size() > wanted ? ids.size() - wanted : 0;
  const auto end = std::remove_if(ids.rbegin(), ids.rend(), [&](TokenId id) {
    if (surplus == 0 || hits.of_token[id] != threshold) return false;
    --surplus;
    return true;
  });
  return ids.last(static_cast<std::size_t>(end - ids.rbegin()));
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline WtaLshEachScreener::WtaLshEachScreener(const IndexReader& in)
    : index_(std::make_shared<const detail::WtaIndex>(in)), top_collisions_(0) {
  in.option("top_collisions", top_collisions_);
  in.check([&] { check_options("wta-lsh-each", WtaLshEachOptions{.top_collisions = top_collisions_}); });
}

inline void WtaLshEachScreener::save(IndexWriter& out) const {
  out.kind(WtaLshEach::kind);
  out.option("top_collisions", top_collisions_);
  index_->save(out);
}

inline Candidates WtaLshEachScreener::screen(const Query& query, Workspace& workspace) const {
  const std::size_t wanted = query.effort != 0 ? query.effort : top_collisions_;
  if (wanted >= index_->vocab()) return Candidates::all();
  const std::size_t words = index_->mark_words();
  detail::WtaEachScratch& scratch = workspace.scratch<detail::WtaEachScratch>();
  const std::span<std::uint64_t> marks(scratch.marks.get<std::uint64_t>(words), words);
  auto* const ids = scratch.ids.get<TokenId>(index_->vocab());
  Candidates candidates;
  index_->for_each_context(query.h, 0, 1, workspace, [&](std::size_t, const detail::WtaIndex::Hits& hits) {
    const AllowedTokens& allowed = query.edits.allowed;
    const std::size_t threshold = detail::threshold_for(wanted, index_->bands(), hits, allowed, marks);
    detail::mark(hits, threshold, allowed, marks);
    candidates.ids = detail::first_wanted({ids, detail::collect_tokens(marks, ids)}, wanted, threshold, hits);
    candidates.screened = hits.total;
    candidates.bytes_read = index_->bytes_read(hits);
  });
  candidates.edited_apart = !query.edits.allowed.empty();
  if (wanted == top_collisions_) candidates.group = 0;
  return candidates;
}

inline std::size_t WtaLshEachScreener::index_bytes() const {
  return index_->bytes();
}

inline std::unique_ptr<WtaLshEach> WtaLshEach::load(const IndexReader& in) {
  return std::unique_ptr<WtaLshEach>(
      new WtaLshEach(in.layer(), WtaLshEachScreener(in), OutsideMass::load(in, 1)));
}

}  // namespace TOPKSOFTMAX_NAMESPACE
