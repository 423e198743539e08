// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/learning/outside_option.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/option_limits.hpp"
#include "topksoftmax/outside_mass.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/screened_softmax.hpp"
#include "topksoftmax/shortlist/alignment_lists.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/aligned_storage.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

class PackedTokens;

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

/// Options of Shortlist. What builds throws Error for values out of their ranges.
struct ShortlistOptions {
  /// T, most frequent tokens that are candidates of every context: at least 1; V/10 unless given.
  std::optional<std::size_t> top_frequent = std::nullopt;
  /// Contexts, evenly spaced ones, that the mass outside of the list is learned from (Normalizer::learned);
  /// 0, or fewer than 100 contexts: it is not.
  std::size_t outside_sample = 5000;
  /// How often each token occurred in the training text [V], to tell which are frequent. Empty: the layer's
  /// biases tell, or if it has none, the lengths of its rows.
  std::vector<std::int64_t> counts = {};

  /// Told how far the build is; may be empty.
  TrainingProgress progress = {};

  /// Calls visit(name, value, help[, limits]) for every option, in the order of their declaration.
  template <class Self, class Visit>
  static void visit(Self& options, Visit&& visit) {
    visit("top_frequent", options.top_frequent, "T, the tokens; V/10 if null", at_least(1));
    detail::visit_outside_sample(options, visit);
  }
};

/// Screens by a fixed list: its tokens are the candidates of every context.
class TOPKSOFTMAX_EXPORT ShortlistScreener {
 public:
  /// Screens by one list of tokens, each below `vocab`.
  ShortlistScreener(std::shared_ptr<const detail::PackedTokens> tokens, std::size_t vocab)
      : tokens_(std::move(tokens)), vocab_(vocab) {}

  /// The candidates of a query, in `workspace` until it is used again; see Screener.
  Candidates screen(const Query& query, Workspace& workspace) const;
  /// The backend's name.
  std::string_view name() const { return "shortlist"; }
  /// Bytes kept beside the layer.
  std::size_t index_bytes() const;

  /// The list, the most frequent tokens first.
  std::span<const TokenId> tokens() const;

 private:
  std::shared_ptr<const detail::PackedTokens> tokens_;
  std::size_t vocab_;
};

/// Fixed lists: the T most frequent tokens (TOP in "Fast Locality Sensitive Hashing for Beam Search on GPU"),
/// and for the sentences of a translation also the tokens that theirs are aligned with (WA; Shi and Knight,
/// ACL 2017). log Z is over the list; where contexts have taught the mass of all other tokens, it counts that
/// too (Normalizer::learned), unless a query forbids more than a few tokens (OutsideMass) or has another
/// effort.
///
/// Effort: how many of the list, the most frequent first; from V on every token is scored.
///
/// Cost of a query: list·d weights, from a copy that lies in one piece. Index: 4·list·(d + 2) bytes, and for
/// the order of the tokens 4·V.
class TOPKSOFTMAX_EXPORT Shortlist final : public ScreenedSoftmax<ShortlistScreener> {
 public:
  /// The T most frequent tokens. Cost: V·log V + T·d. Throws Error for unusable options. Defined in
  /// shortlist/build.hpp.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<Shortlist> build(SoftmaxLayer layer,
                                                                   const ShortlistOptions& options = {});

  /// The same with the mass outside of the list learned from contexts [N×d]. Cost: also min(N,
  /// outside_sample)·V·d multiply-adds and min(N, outside_sample)·V exponentials, on threads of the executor.
  /// Throws Error also for contexts of another dimension or that are not finite. Defined in
  /// shortlist/build.hpp.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<Shortlist> build(
      SoftmaxLayer layer, const ConstRows& contexts, const ShortlistOptions& options = {},
      const Executor& executor = default_executor());

  /// The same for contexts in plain memory; no contexts: the first form. Defined in shortlist/build.hpp.
  static TOPKSOFTMAX_BUILD_INLINE std::unique_ptr<Shortlist> build(
      SoftmaxLayer layer, const Contexts& contexts, const ShortlistOptions& options,
      const Executor& executor = default_executor());

  /// A backend for some sentences, one or a batch: its list is this one's and the targets of all their
  /// tokens (AlignmentLists::targets_of), and nothing is learned of the others. It shares the layer and the
  /// order of the tokens with this one. Cost: V + list·d, at every call. Throws Error for a token that the
  /// lists do not have, and for lists with targets of V or more.
  std::unique_ptr<Shortlist> for_sentences(const AlignmentLists& lists,
                                           std::span<const TokenId> source_tokens) const;

  /// Those of the list, of the order of the tokens, and of what was learned.
  std::size_t index_bytes() const override {
    return ScreenedSoftmax::index_bytes() + order_.size() * sizeof(TokenId);
  }

  /// The kind of its indexes.
  static constexpr std::string_view kind = "shortlist";

  /// The backend of an index that was saved for the same layer: see load_index(). The rows of the
  /// list are copied from the layer again.
  static std::unique_ptr<Shortlist> load(const IndexReader& in);

 private:
  Shortlist(const SoftmaxLayer& layer, StoredArray<TokenId> order, ShortlistScreener screener,
            std::size_t top_frequent, std::optional<OutsideMass> outside = std::nullopt);

  static ShortlistScreener screener_of(const SoftmaxLayer& layer, std::vector<TokenId> list);

  void do_save(IndexWriter& out) const override;

  StoredArray<TokenId> order_;  ///< all tokens, the most frequent first
  std::size_t top_frequent_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Tokens with copies of their rows, in one piece.
class PackedTokens {
 public:
  PackedTokens(const SoftmaxLayer& layer, std::vector<TokenId> ids) : ids_(std::move(ids)) {
    const kernels::Rows& all = layer.rows();
    const std::size_t row_bytes = all.row_bytes();
    weights_ = aligned_zeros(ids_.size() * row_bytes);
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      const auto token = static_cast<std::size_t>(ids_[i]);
      std::copy_n(all.row(token), row_bytes, weights_.get() + i * row_bytes);
      if (all.bias != nullptr) biases_.push_back(all.bias[token]);
      if (all.scales != nullptr) scales_.push_back(all.scales[token]);
    }
    rows_ = all;
    rows_.data = weights_.get();
    rows_.stride = all.dim;
    rows_.count = ids_.size();
    if (all.bias != nullptr) rows_.bias = biases_.data();
    if (all.scales != nullptr) rows_.scales = scales_.data();
  }
  PackedTokens(const PackedTokens&) = delete;
  PackedTokens& operator=(const PackedTokens&) = delete;

  std::span<const TokenId> ids() const { return ids_; }
  const kernels::Rows& rows() const { return rows_; }
  std::size_t bytes() const { return rows_.bytes(rows_.count) + ids_.size() * sizeof(TokenId); }

 private:
  std::vector<TokenId> ids_;
  AlignedStorage weights_;
  std::vector<float> biases_;
  std::vector<float> scales_;
  kernels::Rows rows_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline Candidates ShortlistScreener::screen(const Query& query, Workspace&) const {
  if (query.effort >= vocab_) return Candidates::all();
  const std::span<const TokenId> ids = tokens_->ids();
  Candidates candidates;
  candidates.ids = query.effort == 0 ? ids : ids.first(std::min(query.effort, ids.size()));
  candidates.packed = &tokens_->rows();
  if (query.effort == 0) candidates.group = 0;
  return candidates;
}

inline std::size_t ShortlistScreener::index_bytes() const {
  return tokens_->bytes();
}

inline std::span<const TokenId> ShortlistScreener::tokens() const {
  return tokens_->ids();
}

inline ShortlistScreener Shortlist::screener_of(const SoftmaxLayer& layer, std::vector<TokenId> list) {
  return {std::make_shared<const detail::PackedTokens>(layer, std::move(list)), layer.vocab()};
}

inline Shortlist::Shortlist(const SoftmaxLayer& layer, StoredArray<TokenId> order, ShortlistScreener screener,
                            std::size_t top_frequent, std::optional<OutsideMass> outside)
    : ScreenedSoftmax(layer, std::move(screener), std::move(outside)),
      order_(std::move(order)),
      top_frequent_(top_frequent) {}

inline void Shortlist::do_save(IndexWriter& out) const {
  out.kind(Shortlist::kind);
  out.option("top_frequent", top_frequent_);
  out.array("order", {order_.size()}, order_);
  const std::span<const TokenId> list = screener().tokens();
  out.array("list", {list.size()}, StoredArray<TokenId>::borrow(list));
  save_outside(out);
}

inline std::unique_ptr<Shortlist> Shortlist::load(const IndexReader& in) {
  std::size_t top_frequent = 0;
  in.option("top_frequent", top_frequent);
  const StoredArray<TokenId> order = in.distinct_tokens("order", {in.vocab()});
  const StoredArray<TokenId> list = in.distinct_tokens("list", {IndexReader::any});
  return std::unique_ptr<Shortlist>(new Shortlist(in.layer(), order,
                                                  screener_of(in.layer(), {list.begin(), list.end()}),
                                                  top_frequent, OutsideMass::load(in, 1)));
}

inline std::unique_ptr<Shortlist> Shortlist::for_sentences(const AlignmentLists& lists,
                                                           std::span<const TokenId> source_tokens) const {
  if (lists.target_bound() > layer().vocab()) {
    throw Error("shortlist: the lists have target " + std::to_string(lists.target_bound() - 1) +
                "; the layer's tokens end before V = " + std::to_string(layer().vocab()));
  }
  std::vector<bool> chosen(layer().vocab(), false);
  for (const TokenId id : screener().tokens()) chosen[static_cast<std::size_t>(id)] = true;
  for (const TokenId target : lists.targets_of(source_tokens))
    chosen[static_cast<std::size_t>(target)] = true;
  std::vector<TokenId> list;
  for (const TokenId id : order_) {
    if (chosen[static_cast<std::size_t>(id)]) list.push_back(id);
  }
  return std::unique_ptr<Shortlist>(
      new Shortlist(layer(), order_, screener_of(layer(), std::move(list)), top_frequent_));
}

}  // namespace TOPKSOFTMAX_NAMESPACE
