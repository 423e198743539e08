// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "topksoftmax/allowed_tokens.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/numeric/bits.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Writes the tokens of a set, a bit each, to `ids` in ascending order; returns how many.
inline std::size_t collect_tokens(std::span<const std::uint64_t> marks, TokenId* ids) {
  std::size_t count = 0;
  for (std::size_t word = 0; word < marks.size(); ++word) {
    visit_bits(marks[word], [&](std::size_t i) { ids[count++] = static_cast<TokenId>(word * 64 + i); });
  }
  return count;
}

/// Takes the tokens that are not allowed out of the set; returns how many are left.
inline std::size_t keep_allowed(const AllowedTokens& allowed, std::span<std::uint64_t> marks) {
  std::size_t count = 0;
  for (std::size_t word = 0; word < marks.size(); ++word) {
    marks[word] &= allowed.block(word);
    count += static_cast<std::size_t>(std::popcount(marks[word]));
  }
  return count;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
