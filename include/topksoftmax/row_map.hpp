// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "topksoftmax/allowed_tokens.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Which rows of a layer are which tokens of a model that has other ids: see MappedVocabulary.
///
/// Keeps 4·rows bytes, and 16 for every 64 tokens of V that some row is one of (at most 16·rows, however
/// large V is); where some rows are padding a bit a row, and 4 bytes a token where padding lies before some.
class TOPKSOFTMAX_EXPORT RowMap {
 public:
  /// In place of an id, of a row that is not a token; in place of a row, of a token that has none.
  static constexpr TokenId none = -1;

  /// token_of_row[r] is the token of row r, below `vocab`, or `none`. Throws Error for other ids, unless they
  /// rise strictly from row to row, and where no row is a token.
  RowMap(StoredArray<TokenId> token_of_row, std::size_t vocab);

  /// V, the model's number of tokens.
  std::size_t vocab() const { return vocab_; }
  /// How many of them have a row.
  std::size_t tokens() const { return tokens_; }
  /// The token of every row, or `none`.
  const StoredArray<TokenId>& token_of_row() const { return token_of_row_; }

  /// The token of a row, or `none`.
  TokenId token_of(TokenId row) const { return token_of_row_[static_cast<std::size_t>(row)]; }

  /// The row of a token below vocab(), or `none`. Cost: a binary search.
  TokenId row_of(TokenId id) const {
    const auto number = static_cast<std::uint32_t>(id) / 64;
    const auto block = std::lower_bound(blocks_.begin(), blocks_.end(), number,
                                        [](const Block& one, std::uint32_t n) { return one.number < n; });
    const std::uint64_t bit = std::uint64_t{1} << (static_cast<std::uint32_t>(id) % 64);
    if (block == blocks_.end() || block->number != number || (block->present & bit) == 0) return none;
    return nth_row(block->before + static_cast<std::size_t>(std::popcount(block->present & (bit - 1))));
  }

  /// How many of the tokens that have a row are allowed. Cost: O(V/64), and at most O(rows).
  std::size_t count(const AllowedTokens& allowed) const;

  /// Edits of tokens as those of their rows, in the workspace until it is used for this again. Rows that are
  /// no tokens are forbidden; biases of tokens without a row are dropped. Cost: that of count() and
  /// O(rows/64), a binary search for every bias, and a step for every token that is allowed or forbidden
  /// unlike most of the 64 that it is among.
  kernels::LogitEdits on_rows(const kernels::LogitEdits& edits, Workspace& workspace) const;

  /// The logits [V] of all tokens from those [rows] of all rows: −∞ where there is no row.
  void scatter(const float* of_rows, float* of_tokens) const;

  /// Bytes that it keeps.
  std::size_t bytes() const;

 private:
  /// 64 tokens of which some have a row.
  struct Block {
    std::uint64_t present;  ///< which of them
    std::uint32_t number;   ///< of the first token, divided by 64
    std::uint32_t before;   ///< how many tokens of lower blocks have a row
  };

  TokenId nth_row(std::size_t n) const { return rows_.empty() ? static_cast<TokenId>(n) : rows_[n]; }
  void allow_rows(const AllowedTokens& allowed, std::uint64_t* rows) const;

  StoredArray<TokenId> token_of_row_;
  std::size_t vocab_;
  std::size_t tokens_ = 0;
  std::vector<Block> blocks_;              ///< by their numbers
  std::vector<TokenId> rows_;              ///< their rows, unless these are the first ones
  std::vector<std::uint64_t> token_rows_;  ///< rows that are tokens, by blocks of 64; empty: all are
};

}  // namespace TOPKSOFTMAX_NAMESPACE

#if defined(TOPKSOFTMAX_HEADER_ONLY)
#include "topksoftmax/row_map-inl.hpp"
#endif
