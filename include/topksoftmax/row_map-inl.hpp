// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "topksoftmax/allowed_tokens.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/numeric/bits.hpp"
#include "topksoftmax/row_map.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Edits of rows.
struct RowEditsScratch {
  ScratchBuffer allowed;
  ScratchBuffer biases;
};

inline std::uint64_t low_bits(int count) {
  return count == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
}

/// Bit n of the result is the n-th of those bits of `bits` that are set in `present`, which holds them all.
inline std::uint64_t compressed(std::uint64_t bits, std::uint64_t present) {
  const int all = std::popcount(present);
  if (2 * std::popcount(bits) > all) return low_bits(all) ^ compressed(present ^ bits, present);
  std::uint64_t result = 0;
  visit_bits(bits, [&](std::size_t i) {
    result |= std::uint64_t{1} << std::popcount(present & low_bits(static_cast<int>(i)));
  });
  return result;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

TOPKSOFTMAX_INLINE RowMap::RowMap(StoredArray<TokenId> token_of_row, std::size_t vocab)
    : token_of_row_(std::move(token_of_row)), vocab_(vocab) {
  constexpr auto most = static_cast<std::size_t>(std::numeric_limits<TokenId>::max());
  if (vocab > most) {
    throw Error("mapped: V is " + std::to_string(vocab) + "; it must be at most " + std::to_string(most));
  }
  std::size_t last = 0;  // row of a token
  std::size_t blocks = 0;
  for (std::size_t row = 0; row < token_of_row_.size(); ++row) {
    const TokenId id = token_of_row_[row];
    if (id == none) continue;
    if (id < 0 || static_cast<std::size_t>(id) >= vocab) {
      throw Error("mapped: row " + std::to_string(row) + " is token " + std::to_string(id) +
                  "; ids must be at least 0 and below V = " + std::to_string(vocab) +
                  ", or -1 for a row that is not a token");
    }
    if (tokens_ > 0 && id <= token_of_row_[last]) {
      throw Error("mapped: row " + std::to_string(row) + " is token " + std::to_string(id) + ", row " +
                  std::to_string(last) + " before it token " + std::to_string(token_of_row_[last]) +
                  "; ids must rise strictly, so that of equal logits the lower id goes first: sort the "
                  "layer's rows by their ids");
    }
    if (tokens_ == 0 || id / 64 != token_of_row_[last] / 64) ++blocks;
    last = row;
    ++tokens_;
  }
  if (tokens_ == 0) throw Error("mapped: no row is a token; at least 1 must be");

  const bool first_rows = last + 1 == tokens_;
  if (!first_rows) rows_.reserve(tokens_);
  if (tokens_ < token_of_row_.size()) token_rows_.resize((token_of_row_.size() + 63) / 64);
  blocks_.reserve(blocks);
  std::uint32_t before = 0;
  for (std::size_t row = 0; row < token_of_row_.size(); ++row) {
    if (token_of_row_[row] == none) continue;
    const auto id = static_cast<std::uint32_t>(token_of_row_[row]);
    if (blocks_.empty() || blocks_.back().number != id / 64) {
      blocks_.push_back({.present = 0, .number = id / 64, .before = before});
    }
    blocks_.back().present |= std::uint64_t{1} << (id % 64);
    ++before;
    if (!first_rows) rows_.push_back(static_cast<TokenId>(row));
    if (!token_rows_.empty()) token_rows_[row / 64] |= std::uint64_t{1} << (row % 64);
  }
}

TOPKSOFTMAX_INLINE std::size_t RowMap::count(const AllowedTokens& allowed) const {
  if (allowed.empty()) return tokens_;
  return detail::count_bits(
      blocks_.size(), [&](std::size_t i) { return blocks_[i].present & allowed.block(blocks_[i].number); });
}

/// Sets the bits of the rows whose tokens are allowed. Rows rise with their tokens, so the rows of a block of
/// tokens are one run of bits, but where padding lies between them.
TOPKSOFTMAX_INLINE void RowMap::allow_rows(const AllowedTokens& allowed, std::uint64_t* rows) const {
  for (const Block& block : blocks_) {
    const std::uint64_t bits = block.present & allowed.block(block.number);
    if (bits == 0) continue;
    const std::uint64_t run = detail::compressed(bits, block.present);
    const auto count = static_cast<std::size_t>(std::popcount(block.present));
    const auto first = static_cast<std::size_t>(nth_row(block.before));
    const auto last = static_cast<std::size_t>(nth_row(block.before + count - 1));
    if (last - first + 1 == count) {
      rows[first / 64] |= run << (first % 64);
      if (first / 64 != last / 64) rows[first / 64 + 1] |= run >> (64 - first % 64);
      continue;
    }
    detail::visit_bits(run, [&](std::size_t i) {
      const auto row = static_cast<std::size_t>(nth_row(block.before + i));
      rows[row / 64] |= std::uint64_t{1} << (row % 64);
    });
  }
}

TOPKSOFTMAX_INLINE kernels::LogitEdits RowMap::on_rows(const kernels::LogitEdits& edits,
                                                       Workspace& workspace) const {
  kernels::LogitEdits on_rows;
  on_rows.allowed = token_rows_;
  if (edits.empty()) return on_rows;
  auto& scratch = workspace.scratch<detail::RowEditsScratch>();
  if (!edits.allowed.empty()) {
    const std::size_t words = (token_of_row_.size() + 63) / 64;
    auto* const rows = scratch.allowed.get<std::uint64_t>(words);
    std::fill_n(rows, words, std::uint64_t{0});
    allow_rows(edits.allowed, rows);
    on_rows.allowed = AllowedTokens(rows, words);
  }
  if (edits.bias_count == 0) return on_rows;
  auto* const biases = scratch.biases.get<TokenBias>(edits.bias_count);
  for (std::size_t i = 0; i < edits.bias_count; ++i) {
    const TokenId row = row_of(edits.bias[i].id);
    if (row != none) biases[on_rows.bias_count++] = {row, edits.bias[i].bias};
  }
  on_rows.bias = biases;
  return on_rows;
}

TOPKSOFTMAX_INLINE void RowMap::scatter(const float* of_rows, float* of_tokens) const {
  std::fill_n(of_tokens, vocab_, -std::numeric_limits<float>::infinity());
  for (std::size_t row = 0; row < token_of_row_.size(); ++row) {
    if (token_of_row_[row] != none) of_tokens[token_of_row_[row]] = of_rows[row];
  }
}

TOPKSOFTMAX_INLINE std::size_t RowMap::bytes() const {
  return token_of_row_.size() * sizeof(TokenId) + blocks_.size() * sizeof(Block) +
         rows_.size() * sizeof(TokenId) + token_rows_.size() * sizeof(std::uint64_t);
}

}  // namespace TOPKSOFTMAX_NAMESPACE
