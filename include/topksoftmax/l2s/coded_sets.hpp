// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/log_sum_exp.hpp"
#include "topksoftmax/kernels/logit_transform.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/l2s/candidate_sets.hpp"
#include "topksoftmax/l2s/row_codes.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/rows/prefix_store.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What CodedSets works in.
struct CodedSetsScratch {
  ScratchBuffer best;
  ScratchBuffer places;
  ScratchBuffer ids;
};

/// An 8-bit copy of the rows of long candidate sets, each set's in one piece (RowCodes). What a query reads
/// of it proves which few of its candidates may be among the k best, and these alone are scored.
class CodedSets {
 public:
  /// Shorter sets are scored as soon. On an AMD EPYC sets of 200 took three quarters of the time, sets of 100
  /// a tenth more.
  static constexpr std::size_t kFewest = 128;

  CodedSets() = default;

  /// Copies the sets that are long enough; none where they take more than twice what the layer does, or d is
  /// above RowCodes::kMostDim. Cost: d for each token of these sets.
  CodedSets(const SoftmaxLayer& layer, const CandidateSets& sets);

  /// Reads what save() has written; nothing where nothing was.
  CodedSets(const IndexReader& in, const CandidateSets& sets);
  /// The tensors "codes" and "codes.longest", if there are any codes.
  void save(IndexWriter& out) const;

  /// Bytes kept.
  std::size_t bytes() const { return codes_.blocks().bytes(); }

  /// Leaves of the candidates, the whole set of a cluster, those that may be among the query's k best. The
  /// others count in log Z by their estimates. Leaves all where the set has no codes, where k is no small
  /// part of it, where the query edits logits, and where h cannot be bounded.
  void narrow(const Query& query, const SoftmaxLayer& layer, Workspace& workspace,
              Candidates& candidates) const;

 private:
  /// Bounds of some tokens, and where among them are those that may be among the k best.
  struct Narrowed {
    RowBounds bounds;
    std::span<const TokenId> stay;
  };
  static constexpr std::string_view kCodes = "codes";
  static constexpr std::string_view kLongest = "codes.longest";
  /// Sets are narrowed for no more than this share of them.
  static constexpr std::size_t kShare = 4;

  static std::size_t blocks_of(std::size_t tokens) {
    constexpr std::size_t rows = kernels::PrefixBlocks::kRows;
    return tokens < kFewest ? 0 : (tokens + rows - 1) / rows;
  }
  std::optional<Narrowed> prove(const Query& query, const SoftmaxLayer& layer, Workspace& workspace,
                                Candidates& candidates) const;
  static void count_others(const Narrowed& narrowed, const LogitTransform& transform, Candidates& candidates);
  void place(const CandidateSets& sets);
  /// Calls visit(id, at) for every token that is coded, which is row `at` of the codes.
  template <class Visit>
  void visit_coded(const CandidateSets& sets, const Visit& visit) const {
    for (std::size_t t = 0; t < sets.size(); ++t) {
      if (starts_[t] == starts_[t + 1]) continue;
      std::size_t at = starts_[t] * kernels::PrefixBlocks::kRows;
      for (const TokenId id : sets[t]) visit(id, at++);
    }
  }
  kernels::PrefixBlocks of(std::size_t set) const {
    return codes_.blocks().part(starts_[set], starts_[set + 1] - starts_[set]);
  }

  std::vector<std::size_t> starts_;  ///< [r + 1], the first block of each set
  RowCodes codes_;
};

inline void CodedSets::place(const CandidateSets& sets) {
  starts_.assign(1, 0);
  for (std::size_t t = 0; t < sets.size(); ++t) {
    starts_.push_back(starts_.back() + blocks_of(sets[t].size()));
  }
}

inline CodedSets::CodedSets(const SoftmaxLayer& layer, const CandidateSets& sets) {
  place(sets);
  const std::size_t dim = layer.dim();
  const std::size_t rows = starts_.back() * kernels::PrefixBlocks::kRows;
  if (rows == 0 || dim > RowCodes::kMostDim) return;
  const kernels::PrefixBlocks planned = {.rows = rows, .width = kernels::PrefixBlocks::width_for(dim)};
  if (planned.bytes() > 2 * layer.rows().bytes(layer.vocab())) return;
  RowCoder coder(rows, dim);
  std::vector<float> row(dim);
  const float* const biases = layer.rows().bias;
  visit_coded(sets, [&](TokenId id, std::size_t at) {
    layer.copy_row(static_cast<std::size_t>(id), row.data());
    coder.put(at, biases == nullptr ? 0.0F : biases[id], row);
  });
  codes_ = std::move(coder).finish();
}

inline CodedSets::CodedSets(const IndexReader& in, const CandidateSets& sets) {
  place(sets);
  if (!in.has_tensor(kCodes) && !in.has_tensor(kLongest)) return;
  const std::size_t dim = in.dim();
  if (dim > RowCodes::kMostDim) throw in.damaged(kCodes, "cannot be of rows of " + std::to_string(dim));
  PrefixStore store(in, kCodes, starts_.back() * kernels::PrefixBlocks::kRows,
                    kernels::PrefixBlocks::width_for(dim));
  const float* const biases = in.layer().rows().bias;
  visit_coded(sets, [&](TokenId id, std::size_t at) {
    if (store.bias(at) == (biases == nullptr ? 0.0F : biases[id])) return;
    throw in.damaged(kCodes, "has another bias than the layer for token " + std::to_string(id));
  });
  const double longest = in.doubles(kLongest, {1})[0];
  if (!(longest >= 0.0)) throw in.damaged(kLongest, "is no length");
  codes_ = RowCodes(std::move(store), longest);
}

inline void CodedSets::save(IndexWriter& out) const {
  if (codes_.empty()) return;
  codes_.store().save(out, kCodes);
  out.array(kLongest, {1}, StoredArray<double>::own(std::vector<double>{codes_.longest()}));
}

/// Proves which candidates may be among the k best; nothing where that is not worth it, or cannot be done.
inline std::optional<CodedSets::Narrowed> CodedSets::prove(const Query& query, const SoftmaxLayer& layer,
                                                           Workspace& workspace,
                                                           Candidates& candidates) const {
  const std::size_t set = candidates.group;
  const std::size_t count = candidates.ids.size();
  if (codes_.empty() || starts_[set] == starts_[set + 1] || query.k > count / kShare) return std::nullopt;
  if (!query.edits.empty()) return std::nullopt;
  const kernels::PrefixBlocks blocks = of(set);
  const std::optional<RowBounds> bounds = codes_.bound(blocks, query.h, layer.dim(), workspace);
  if (!bounds) return std::nullopt;
  candidates.bytes_read += blocks.bytes();
  candidates.screened += count;

  CodedSetsScratch& scratch = workspace.scratch<CodedSetsScratch>();
  auto* const best = scratch.best.get<ScoredToken>(query.k);
  if (kernels::rank_best(bounds->low, candidates.ids.data(), count, query.k, best) < query.k) {
    return std::nullopt;
  }
  // So many tokens have logits that are no lower, and no product below `lowest` has such a logit.
  const LogitTransform& transform = layer.transform();
  const double logit = transform(static_cast<double>(best[query.k - 1].logit));
  const double slack = transform.is_identity() ? 0.0 : kernels::transform_slack(logit);
  const float lowest = kernels::lowest_product(transform, static_cast<float>(logit - slack));
  auto* const places = scratch.places.get<TokenId>(count + kernels::kSlack);
  const std::size_t staying = kernels::reaching(bounds->estimates, bounds->radii, count, lowest, places);
  if (staying < query.k) return std::nullopt;
  return Narrowed{*bounds, {places, staying}};
}

/// Adds what the candidates that do not stay have of log Z by their estimates, which are lost.
inline void CodedSets::count_others(const Narrowed& narrowed, const LogitTransform& transform,
                                    Candidates& candidates) {
  const std::size_t count = candidates.ids.size();
  float* const logits = narrowed.bounds.estimates;
  kernels::transform(transform, logits, count);
  const float max = kernels::max(logits, count);
  double staying = 0.0;
  for (const TokenId place : narrowed.stay) {
    staying += std::exp(static_cast<double>(logits[place]) - static_cast<double>(max));
    logits[place] = -std::numeric_limits<float>::infinity();
  }
  const double others = kernels::sum_exp(logits, count, max);
  const auto log_of = [max](double sum) { return static_cast<double>(max) + std::log(sum); };
  // What was learned of the tokens outside may not exceed the whole set by more than this.
  candidates.outside = std::min(candidates.outside, log_of(staying + others) + candidates.most_outside);
  candidates.most_outside = std::numeric_limits<double>::infinity();
  if (others > 0.0) candidates.outside = kernels::log_add_exp(candidates.outside, log_of(others));
}

inline void CodedSets::narrow(const Query& query, const SoftmaxLayer& layer, Workspace& workspace,
                              Candidates& candidates) const {
  const std::optional<Narrowed> narrowed = prove(query, layer, workspace, candidates);
  if (!narrowed) return;
  if (query.probabilities) count_others(*narrowed, layer.transform(), candidates);
  const std::size_t staying = narrowed->stay.size();
  auto* const ids = workspace.scratch<CodedSetsScratch>().ids.get<TokenId>(staying);
  for (std::size_t i = 0; i < staying; ++i) {
    ids[i] = candidates.ids[static_cast<std::size_t>(narrowed->stay[i])];
  }
  candidates.ids = {ids, staying};
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
