// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Where the random bits of Gumbel variables are (see TokenGumbels), by the numbers of SplitMix64's outputs.
struct GumbelBlocks {
  /// Tokens of a block: ids from a multiple of this on.
  static constexpr std::size_t kTokens = 16;
  /// Tokens of a block that have ranks: those with its least exponentials.
  static constexpr std::size_t kRanked = 3;
  /// Numbers of a block's random bits: of its ranks, and behind them those of its tokens.
  static constexpr std::size_t kNumbers = 2 * kTokens;

  /// That of a rank within its block. All but the first have one more, for their places.
  static constexpr std::size_t number_of(std::size_t rank) { return rank == 0 ? 0 : 2 * rank - 1; }
  /// Tokens of a block that have this rank, or one behind it.
  static constexpr std::size_t behind(std::size_t rank) { return kTokens - rank; }

  /// Allowance for the rounding of exponentials and logarithms.
  static constexpr double kRoundedUp = 1.0 + 1e-12;
  static constexpr double kRoundedDown = 1.0 - 1e-12;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
