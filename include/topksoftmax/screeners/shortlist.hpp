// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "topksoftmax/export.hpp"
#include "topksoftmax/screened_softmax.hpp"
#include "topksoftmax/screeners/alignment_lists.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/stored_array.hpp"

namespace topksoftmax {

struct ShortlistOptions {
  /// T, most frequent tokens that are candidates of every context: at least 1; V/10 unless given.
  std::optional<std::size_t> top_frequent = std::nullopt;
  /// How often each token occurred in the training text [V], to tell which are frequent. Empty: the layer's
  /// biases tell, or if it has none, the lengths of its rows.
  std::vector<std::int64_t> counts = {};
};

class PackedTokens;

/// Screens by a fixed list: its tokens are the candidates of every context.
class TOPKSOFTMAX_EXPORT ShortlistScreener {
 public:
  ShortlistScreener(std::shared_ptr<const PackedTokens> tokens, std::size_t vocab)
      : tokens_(std::move(tokens)), vocab_(vocab) {}

  Candidates screen(const Query& query, Workspace& workspace) const;
  std::string_view name() const { return "shortlist"; }
  std::size_t index_bytes() const;

  /// The list, the most frequent tokens first.
  std::span<const TokenId> tokens() const;

 private:
  std::shared_ptr<const PackedTokens> tokens_;
  std::size_t vocab_;
};

/// Fixed lists: the T most frequent tokens (TOP in "Fast Locality Sensitive Hashing for Beam Search on GPU"),
/// and for the sentences of a translation also the tokens that theirs are aligned with (WA; Shi and Knight,
/// ACL 2017). log Z is over the list.
///
/// Effort: how many of the list, the most frequent first; from V on every token is scored.
///
/// Cost of a query: list·d weights, from a copy that lies in one piece. Index: 4·list·(d + 2) bytes, and for
/// the order of the tokens 4·V.
class TOPKSOFTMAX_EXPORT Shortlist final : public ScreenedSoftmax<ShortlistScreener> {
 public:
  /// The T most frequent tokens. Cost: V·log V + T·d. Throws Error for unusable options.
  static std::unique_ptr<Shortlist> build(SoftmaxLayer layer, const ShortlistOptions& options = {});

  /// A backend for some sentences, one or a batch: its list is this one's and the targets of all their
  /// tokens. It shares nothing with this one but the layer. Cost: list·d, at every call. Throws Error for a
  /// token that the lists do not have, and for lists with targets of V or more.
  std::unique_ptr<Shortlist> for_sentences(const AlignmentLists& lists,
                                           std::span<const TokenId> source_tokens) const;

  /// The backend whose index save() has written for the same layer: see load_index(), which throws as this
  /// does; here Error also for an index of another kind.
  static std::unique_ptr<Shortlist> load(const std::filesystem::path& path, SoftmaxLayer layer);

  /// The same from a file that is open. The rows of the list are copied from the layer again.
  static std::unique_ptr<Shortlist> load(const IndexReader& in);

 private:
  Shortlist(const SoftmaxLayer& layer, StoredArray<TokenId> order, std::vector<TokenId> list,
            std::size_t top_frequent);

  void do_save(IndexWriter& out) const override;

  StoredArray<TokenId> order_;  ///< all tokens, the most frequent first
  std::size_t top_frequent_;
};

}  // namespace topksoftmax
