// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/check_options.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/prefetch.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/learning/outside_option.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/option_limits.hpp"
#include "topksoftmax/outside_mass.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/rows/stored_rows.hpp"
#include "topksoftmax/screened_softmax.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What LshMipsScreener works in.
struct LshScratch {
  ScratchBuffer projections;
  ScratchBuffer changes;
  ScratchBuffer buckets;
  ScratchBuffer ids;
  TokenSet seen;
};

class LshMipsIndex;

inline constexpr std::size_t kMostBits = 24;

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

/// Options of LshMips. What builds throws Error for values out of their ranges.
struct LshMipsOptions {
  /// Hash tables: at least 1. The more, the more candidates.
  std::size_t tables = 64;
  /// Sign projections that a table's code is made of: 1 to 24. The more, the fewer rows have one code.
  std::size_t bits = 10;
  /// Buckets of each table that a query looks into, at least 1; a query's `effort` overrides it.
  std::size_t probes = 1;
  /// Of the projections; standard libraries draw different ones from one seed (std::normal_distribution).
  std::uint64_t seed = 1;
  /// Contexts, evenly spaced ones, that the mass outside of the buckets is learned from
  /// (Normalizer::learned); 0, or fewer than 100 contexts: it is not.
  std::size_t outside_sample = 5000;

  /// Told how far the build is; may be empty.
  TrainingProgress progress = {};

  /// What its indexes have of them.
  template <class Self, class Visit>
  static void visit_index(Self& options, Visit&& visit) {
    visit("tables", options.tables, "hash tables", at_least(1));
    visit("bits", options.bits, "of a table's code", between(1, detail::kMostBits));
    visit("probes", options.probes, "buckets of each table that a query looks into", at_least(1));
    visit("seed", options.seed, "of the projections");
  }

  /// Calls visit(name, value, help[, limits]) for every option, in the order of their declaration.
  template <class Self, class Visit>
  static void visit(Self& options, Visit&& visit) {
    visit_index(options, visit);
    detail::visit_outside_sample(options, visit);
  }
};

/// Screens by signs of random projections: candidates are the tokens that share a context's code in a table.
class TOPKSOFTMAX_EXPORT LshMipsScreener {
 public:
  /// Screens by tables that build_lsh_mips.hpp has made or load() has read.
  explicit LshMipsScreener(std::shared_ptr<const detail::LshMipsIndex> index) : index_(std::move(index)) {}

  /// The candidates of a query, in `workspace` until it is used again; see Screener.
  Candidates screen(const Query& query, Workspace& workspace) const;
  /// The backend's name.
  std::string_view name() const { return "lsh-mips"; }
  /// Bytes kept beside the layer.
  std::size_t index_bytes() const;
  /// Puts what the backend's load() reads into `out`.
  void save(IndexWriter& out) const;

 private:
  std::shared_ptr<const detail::LshMipsIndex> index_;
};

/// "On Symmetric and Asymmetric LSHs for Inner Product Search" (Neyshabur and Srebro, ICML 2015): simple-LSH.
///
/// Rows with their biases are lifted to equal lengths (Ippt), so that the largest logit is the smallest
/// angle, and hashed by the signs of `bits` random projections in each of `tables` tables. Without biases the
/// candidates do not depend on the context's length. Several probes of a table go to the buckets whose codes
/// differ where the context's projections are nearest to 0 (query-directed probing, Lv et al., VLDB 2007).
///
/// log Z is over the candidates; where contexts have taught the mass of all other tokens, it counts that
/// too (Normalizer::learned; log_z_error() says how well), unless a query forbids more than a few tokens
/// (OutsideMass) or has another effort.
///
/// Effort: probes; from 2^bits on every token is scored.
///
/// Cost of a query: tables·bits·d multiply-adds, tables·probes buckets, and candidates·d weights. Index:
/// 4·tables·(V + 2^bits) bytes and the projections.
class TOPKSOFTMAX_EXPORT LshMips final : public ScreenedSoftmax<LshMipsScreener> {
 public:
  /// Cost: V·tables·bits·d multiply-adds, tables on the executor's threads. Throws Error for unusable
  /// options. Defined in baselines/build_lsh_mips.hpp.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<LshMips> build(
      SoftmaxLayer layer, const LshMipsOptions& options = {}, const Executor& executor = default_executor());

  /// The same with the mass outside of the candidates learned from contexts [N×d]. Cost: also min(N,
  /// outside_sample)·V·d multiply-adds, min(N, outside_sample)·V exponentials, and the queries. Throws Error
  /// also for contexts of another dimension or that are not finite. Defined in baselines/build_lsh_mips.hpp.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<LshMips> build(
      SoftmaxLayer layer, const ConstRows& contexts, const LshMipsOptions& options = {},
      const Executor& executor = default_executor());

  /// The same for contexts in plain memory; no contexts: the first form. Defined in
  /// baselines/build_lsh_mips.hpp.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<LshMips> build(
      SoftmaxLayer layer, const Contexts& contexts, const LshMipsOptions& options,
      const Executor& executor = default_executor());

  /// The kind of its indexes.
  static constexpr std::string_view kind = "lsh-mips";

  /// The backend of an index that was saved for the same layer: see load_index().
  static std::unique_ptr<LshMips> load(const IndexReader& in);

 private:
  using ScreenedSoftmax::ScreenedSoftmax;
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Bits to change in a code, by their places in the order of falling doubt, and how unlikely that is.
struct Change {
  float cost;
  std::uint32_t places;
  std::uint32_t last;  ///< the highest of the places
};

inline bool dearer(const Change& a, const Change& b) {
  return a.cost != b.cost ? a.cost > b.cost : a.places > b.places;
}

/// The tables: for each, the tokens ordered by code.
class LshMipsIndex {
 public:
  /// Defined in baselines/build_lsh_mips.hpp.
  TOPKSOFTMAX_BUILD_INLINE LshMipsIndex(const SoftmaxLayer& layer, const LshMipsOptions& options,
                                        const Executor& executor);

  /// Reads what save() has written.
  explicit LshMipsIndex(const IndexReader& in) : vocab_(in.vocab()) {
    LshMipsOptions::visit_index(options_, in.options());
    in.check([&] { check_options("lsh-mips", options_); });
    ids_ = in.tokens("ids", {tables(), vocab_});
    const std::size_t bits_in_all = tables() * bits();  // which the ids have shown to be possible
    directions_ = StoredRows(in.floats("directions", {bits_in_all, in.dim()}), in.dim(),
                             in.floats("directions.offsets", {bits_in_all}));
    offsets_ = in.array<std::uint32_t>("offsets", {tables(), buckets() + 1});
    for (std::size_t table = 0; table < tables(); ++table) {
      in.check_offsets("offsets", offsets_.span().subspan(table * (buckets() + 1), buckets() + 1), vocab_);
    }
  }

  void save(IndexWriter& out) const {
    LshMipsOptions::visit_index(options_, out.options());
    out.array("directions", {directions_.count(), directions_.dim()}, directions_.weights());
    out.array("directions.offsets", {directions_.count()}, directions_.biases());
    out.array("offsets", {tables(), buckets() + 1}, offsets_);
    out.array("ids", {tables(), vocab_}, ids_);
  }

  std::size_t vocab() const { return vocab_; }
  std::size_t tables() const { return options_.tables; }
  std::size_t bits() const { return options_.bits; }
  std::size_t probes() const { return options_.probes; }
  std::size_t buckets() const { return std::size_t{1} << bits(); }
  kernels::Rows projections() const { return directions_.rows(); }

  std::size_t bytes() const {
    return directions_.rows().bytes(tables() * bits()) + offsets_.size() * sizeof(offsets_[0]) +
           ids_.size() * sizeof(ids_[0]);
  }

  /// The code of bits() projections: their signs.
  std::uint32_t code_of(const float* projections) const {
    std::uint32_t code = 0;
    for (std::size_t bit = 0; bit < bits(); ++bit) code |= projections[bit] > 0.0F ? 1U << bit : 0U;
    return code;
  }

  std::span<const TokenId> bucket(std::size_t table, std::uint32_t code) const {
    const std::uint32_t* const offsets = offsets_.data() + table * (buckets() + 1) + code;
    return {ids_.data() + table * vocab_ + offsets[0], offsets[1] - offsets[0]};
  }

 private:
  LshMipsOptions options_;
  std::size_t vocab_;
  StoredRows directions_;               ///< bit b of table t is number t·bits + b
  StoredArray<std::uint32_t> offsets_;  ///< [tables × (2^bits + 1)]
  StoredArray<TokenId> ids_;            ///< [tables × V], of one bucket ascending
};

/// Calls visit(code) for the `probes` codes nearest to the projections, the nearest first.
template <class Visit>
void for_each_probe(const LshMipsIndex& index, const float* projections, std::size_t probes,
                    Workspace& workspace, const Visit& visit) {
  const std::uint32_t code = index.code_of(projections);
  visit(code);
  if (probes == 1) return;
  const std::size_t bits = index.bits();
  std::uint32_t order[kMostBits];
  for (std::size_t bit = 0; bit < bits; ++bit) order[bit] = static_cast<std::uint32_t>(bit);
  const auto cost_of = [&](std::size_t place) { return std::abs(projections[order[place]]); };
  std::sort(order, order + bits, [&](std::uint32_t a, std::uint32_t b) {
    const float of_a = std::abs(projections[a]);
    const float of_b = std::abs(projections[b]);
    return of_a != of_b ? of_a < of_b : a < b;
  });
  // Every set of places follows from one cheaper: by moving its last place on, or by adding the next one.
  LshScratch& scratch = workspace.scratch<LshScratch>();
  auto* const heap = scratch.changes.get<Change>(2 * probes);
  std::size_t size = 0;
  const auto push = [&](Change change) {
    heap[size++] = change;
    std::push_heap(heap, heap + size, dearer);
  };
  push({cost_of(0), 1, 0});
  for (std::size_t probe = 1; probe < probes && size > 0; ++probe) {
    std::pop_heap(heap, heap + size, dearer);
    const Change change = heap[--size];
    std::uint32_t changed = code;
    for (std::size_t place = 0; place <= change.last; ++place) {
      if ((change.places >> place & 1U) != 0) changed ^= 1U << order[place];
    }
    visit(changed);
    const std::uint32_t next = change.last + 1;
    if (next == bits) continue;
    const std::uint32_t added = change.places | 1U << next;
    push({change.cost + cost_of(next), added, next});
    push({change.cost + cost_of(next) - cost_of(change.last), added ^ (1U << change.last), next});
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline Candidates LshMipsScreener::screen(const Query& query, Workspace& workspace) const {
  const std::size_t probes = query.effort != 0 ? query.effort : index_->probes();
  if (probes >= index_->buckets()) return Candidates::all();
  const kernels::Rows directions = index_->projections();
  detail::LshScratch& scratch = workspace.scratch<detail::LshScratch>();
  auto* const projections = scratch.projections.get<float>(directions.count);
  kernels::scan(directions, 0, directions.count, query.h, projections);

  // All buckets are found before the first is read: their lines arrive while other tables' codes are made.
  // A place more than there are nonempty ones, as for the ids: what is not counted is written over.
  const std::size_t most = index_->tables() * std::min(probes, index_->vocab()) + 1;
  auto* const buckets = scratch.buckets.get<std::span<const TokenId>>(most);
  std::size_t count = 0;
  for (std::size_t table = 0; table < index_->tables(); ++table) {
    detail::for_each_probe(*index_, projections + table * index_->bits(), probes, workspace,
                           [&](std::uint32_t code) {
                             buckets[count] = index_->bucket(table, code);
                             kernels::prefetch(buckets[count].data());
                             count += buckets[count].empty() ? 0U : 1U;
                           });
  }

  auto* const ids = scratch.ids.get<TokenId>(index_->vocab() + 1);
  scratch.seen.clear(index_->vocab());
  std::size_t found = 0;
  std::size_t met = 0;
  for (const std::span<const TokenId> bucket : std::span(buckets, count)) {
    met += bucket.size();
    for (const TokenId id : bucket) {
      ids[found] = id;  // counted or not: no branch to guess wrong
      found += scratch.seen.insert(id) ? 1U : 0U;
    }
  }
  Candidates candidates;
  candidates.ids = {ids, found};
  if (probes == index_->probes()) candidates.group = 0;
  candidates.screened = met;
  candidates.bytes_read = directions.bytes(directions.count) +
                          index_->tables() * probes * 2 * sizeof(std::uint32_t) + met * sizeof(TokenId);
  return candidates;
}

inline std::size_t LshMipsScreener::index_bytes() const {
  return index_->bytes();
}

inline void LshMipsScreener::save(IndexWriter& out) const {
  out.kind(LshMips::kind);
  index_->save(out);
}

inline std::unique_ptr<LshMips> LshMips::load(const IndexReader& in) {
  auto index = std::make_shared<const detail::LshMipsIndex>(in);
  return std::unique_ptr<LshMips>(
      new LshMips(in.layer(), LshMipsScreener(std::move(index)), OutsideMass::load(in, 1)));
}

}  // namespace TOPKSOFTMAX_NAMESPACE
