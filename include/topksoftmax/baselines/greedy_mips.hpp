// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/check_options.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/index/tensor_view.hpp"
#include "topksoftmax/learning/outside_option.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/numeric/number_text.hpp"
#include "topksoftmax/option_limits.hpp"
#include "topksoftmax/outside_mass.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/screened_softmax.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What GreedyMipsScreener works in.
struct GreedyScratch {
  ScratchBuffer ranks;
  ScratchBuffer next;
  ScratchBuffer ids;
  TokenSet seen;
};

class GreedyMipsIndex;

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

/// Options of GreedyMips. What builds throws Error for values out of their ranges.
struct GreedyMipsOptions {
  /// B, candidates of a query, at least 1; V/10 unless given. A query's `effort` overrides it.
  std::optional<std::size_t> budget = std::nullopt;
  /// Contexts, evenly spaced ones, that the mass outside of the candidates is learned from
  /// (Normalizer::learned); 0, or fewer than 100 contexts: it is not.
  std::size_t outside_sample = 5000;

  /// Told how far the build is; may be empty.
  TrainingProgress progress = {};

  /// Calls visit(name, value, help[, limits]) for every option, in the order of their declaration.
  template <class Self, class Visit>
  static void visit(Self& options, Visit&& visit) {
    visit("budget", options.budget, "B, candidates of a query; V/10 if null", at_least(1));
    detail::visit_outside_sample(options, visit);
  }
};

/// Screens by single products: candidates are the tokens with the largest w_j·h_j in any coordinate j.
class TOPKSOFTMAX_EXPORT GreedyMipsScreener {
 public:
  /// Screens by sorted columns that build_greedy_mips.hpp has made or load() has read.
  GreedyMipsScreener(std::shared_ptr<const detail::GreedyMipsIndex> index, std::size_t budget)
      : index_(std::move(index)), budget_(budget) {}

  /// The candidates of a query, in `workspace` until it is used again; see Screener.
  Candidates screen(const Query& query, Workspace& workspace) const;
  /// The backend's name.
  std::string_view name() const { return "greedy-mips"; }
  /// Bytes kept beside the layer.
  std::size_t index_bytes() const;
  /// Puts what the backend's load() reads into `out`.
  void save(IndexWriter& out) const;

 private:
  std::shared_ptr<const detail::GreedyMipsIndex> index_;
  std::size_t budget_;
};

/// "A Greedy Approach for Budgeted Maximum Inner Product Search" (Yu, Hsieh, Lei and Dhillon, NIPS 2017).
///
/// Every coordinate has all its tokens sorted by their weight, so that they are in the order of w_j·h_j for
/// every h_j ≥ 0, and in the opposite one for others. A heap of the coordinates' next products yields tokens
/// in the order of max_j w_j·h_j until B different ones are found. The bias is one more coordinate, of a
/// context's that is 1 there.
/// Forbidden tokens are passed over.
///
/// log Z is over the candidates; where contexts have taught the mass of all other tokens, it counts that
/// too (Normalizer::learned; log_z_error() says how well), unless a query forbids more than a few tokens
/// (OutsideMass) or has another effort.
///
/// Effort: B; from V on every token is scored.
///
/// Cost of a query: a step of a heap of d + 1 for every entry met, which are B and those met again, and B·d
/// weights. Index: 8·V·(d + 1) bytes, twice the layer.
class TOPKSOFTMAX_EXPORT GreedyMips final : public ScreenedSoftmax<GreedyMipsScreener> {
 public:
  /// Cost: V·log V·d, in parallel on the executor's threads. Throws Error for unusable options. Defined in
  /// baselines/build_greedy_mips.hpp.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<GreedyMips> build(
      SoftmaxLayer layer, const GreedyMipsOptions& options = {},
      const Executor& executor = default_executor());

  /// The same with the mass outside of the candidates learned from contexts [N×d]. Cost: also min(N,
  /// outside_sample)·V·d multiply-adds, min(N, outside_sample)·V exponentials, and the queries. Throws Error
  /// also for contexts of another dimension or that are not finite. Defined in
  /// baselines/build_greedy_mips.hpp.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<GreedyMips> build(
      SoftmaxLayer layer, const ConstRows& contexts, const GreedyMipsOptions& options = {},
      const Executor& executor = default_executor());

  /// The same for contexts in plain memory; no contexts: the first form. Defined in
  /// baselines/build_greedy_mips.hpp.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<GreedyMips> build(
      SoftmaxLayer layer, const Contexts& contexts, const GreedyMipsOptions& options,
      const Executor& executor = default_executor());

  /// The kind of its indexes.
  static constexpr std::string_view kind = "greedy-mips";

  /// The backend of an index that was saved for the same layer: see load_index().
  static std::unique_ptr<GreedyMips> load(const IndexReader& in);

 private:
  using ScreenedSoftmax::ScreenedSoftmax;
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A token and its weight in some coordinate.
struct Entry {
  float weight;
  TokenId id;
};

/// A coordinate's next product.
struct Next {
  float product;
  std::uint32_t coordinate;
};

inline bool smaller(const Next& a, const Next& b) {
  return a.product != b.product ? a.product < b.product : a.coordinate > b.coordinate;
}

/// Restores the heap after its first element changed.
inline void sift_down(Next* heap, std::size_t size) {
  const Next moved = heap[0];
  std::size_t at = 0;
  for (std::size_t child = 1; child < size; child = 2 * at + 1) {
    if (child + 1 < size && smaller(heap[child], heap[child + 1])) ++child;
    if (!smaller(moved, heap[child])) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = moved;
}

/// The tokens of every coordinate by falling weight.
class GreedyMipsIndex {
 public:
  /// Defined in baselines/build_greedy_mips.hpp.
  TOPKSOFTMAX_BUILD_INLINE GreedyMipsIndex(const SoftmaxLayer& layer, const Executor& executor);

  /// Reads what save() has written.
  explicit GreedyMipsIndex(const IndexReader& in)
      : vocab_(in.vocab()),
        dim_(in.dim()),
        coordinates_(dim_ + (in.layer().has_bias() ? 1 : 0)),
        entries_(in.array<Entry>(kEntries, {coordinates_, vocab_, 2}, DataType::int32)) {
    for (const Entry& entry : entries_) {
      if (!std::isnan(entry.weight) && entry.id >= 0 && static_cast<std::size_t>(entry.id) < vocab_) {
        continue;
      }
      throw in.damaged(kEntries, "has the token " + std::to_string(entry.id) + " with the weight " +
                                     value_text(static_cast<double>(entry.weight)));
    }
  }

  void save(IndexWriter& out) const {
    out.array(kEntries, {coordinates_, vocab_, 2}, entries_, DataType::int32);
  }

  std::size_t vocab() const { return vocab_; }
  std::size_t coordinates() const { return coordinates_; }
  std::size_t bytes() const { return entries_.size() * sizeof(Entry); }

  /// The context's value in a coordinate.
  float context(const float* h, std::size_t coordinate) const {
    return coordinate < dim_ ? h[coordinate] : 1.0F;
  }

  /// The entry with the rank-th largest product in a coordinate, for a context's value x there.
  const Entry& entry(std::size_t coordinate, float x, std::size_t rank) const {
    return entries_[coordinate * vocab_ + (x >= 0.0F ? rank : vocab_ - 1 - rank)];
  }

 private:
  static constexpr std::string_view kEntries = "entries";
  static_assert(sizeof(Entry) == 2 * sizeof(std::int32_t));

  std::size_t vocab_;
  std::size_t dim_;
  std::size_t coordinates_;
  StoredArray<Entry> entries_;  ///< [coordinates × V], each coordinate's by falling weight
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline Candidates GreedyMipsScreener::screen(const Query& query, Workspace& workspace) const {
  const detail::GreedyMipsIndex& index = *index_;
  const std::size_t budget = query.effort != 0 ? query.effort : budget_;
  if (budget >= index.vocab()) return Candidates::all();
  const std::size_t coordinates = index.coordinates();
  detail::GreedyScratch& scratch = workspace.scratch<detail::GreedyScratch>();
  auto* const ranks = scratch.ranks.get<std::uint32_t>(coordinates);
  auto* const heap = scratch.next.get<detail::Next>(coordinates);
  for (std::size_t j = 0; j < coordinates; ++j) {
    const float x = index.context(query.h, j);
    ranks[j] = 0;
    heap[j] = {x * index.entry(j, x, 0).weight, static_cast<std::uint32_t>(j)};
  }
  std::make_heap(heap, heap + coordinates, detail::smaller);

  auto* const ids = scratch.ids.get<TokenId>(budget);
  scratch.seen.clear(index.vocab());
  std::size_t found = 0;
  std::size_t met = 0;
  const auto take = [&](TokenId id) {
    ++met;
    if (query.edits.allows(id) && scratch.seen.insert(id)) ids[found++] = id;
  };
  for (std::size_t size = coordinates; size > 0 && found < budget;) {
    const std::size_t j = heap[0].coordinate;
    const float x = index.context(query.h, j);
    take(index.entry(j, x, ranks[j]).id);
    // On to the next token of this coordinate that is not among the candidates yet.
    std::uint32_t rank = ranks[j] + 1;
    while (rank < index.vocab()) {
      const TokenId id = index.entry(j, x, rank).id;
      if (query.edits.allows(id) && !scratch.seen.contains(id)) break;
      ++rank;
      ++met;
    }
    ranks[j] = rank;
    if (rank < index.vocab()) {
      heap[0].product = x * index.entry(j, x, rank).weight;
    } else {
      heap[0] = heap[--size];
    }
    detail::sift_down(heap, size);
  }
  Candidates candidates;
  candidates.ids = {ids, found};
  candidates.edited_apart = !query.edits.allowed.empty();
  if (budget == budget_) candidates.group = 0;
  candidates.screened = met;
  candidates.bytes_read = (coordinates + met) * sizeof(detail::Entry);
  return candidates;
}

inline std::size_t GreedyMipsScreener::index_bytes() const {
  return index_->bytes();
}

inline void GreedyMipsScreener::save(IndexWriter& out) const {
  out.kind(GreedyMips::kind);
  out.option("budget", budget_);
  index_->save(out);
}

inline std::unique_ptr<GreedyMips> GreedyMips::load(const IndexReader& in) {
  std::size_t budget = 0;
  in.option("budget", budget);
  in.check([&] { check_options("greedy-mips", GreedyMipsOptions{.budget = budget}); });
  auto index = std::make_shared<const detail::GreedyMipsIndex>(in);
  return std::unique_ptr<GreedyMips>(
      new GreedyMips(in.layer(), GreedyMipsScreener(std::move(index), budget), OutsideMass::load(in, 1)));
}

}  // namespace TOPKSOFTMAX_NAMESPACE
