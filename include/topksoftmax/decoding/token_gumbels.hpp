// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "topksoftmax/config.hpp"
#include "topksoftmax/numeric/split_mix.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Independent standard Gumbel variables, one for each token, that a key fixes: the token with the largest
/// logit + Gumbel is a draw from the softmax of the logits (Gumbel's maximum; Maddison et al. 2014, section
/// 2). Any one of them is computed on its own, and so is the largest of a block of tokens, so that those
/// above a limit are found without computing the others.
///
/// A Gumbel is −log E with E exponential. Of a block's exponentials the least is exponential too, with a mean
/// as many times smaller, and belongs to each of its tokens alike; what the others exceed it by is
/// independent of it, and exponential again: it has no memory. Random bits are outputs of SplitMix64 (Steele
/// et al. 2014), seeded with the key, by their number.
class TokenGumbels {
 public:
  /// Tokens of a block: ids from a multiple of this on.
  static constexpr std::size_t kBlock = 16;

  explicit TokenGumbels(std::uint64_t key) : key_(key) {}

  /// That of a token.
  double operator[](TokenId id) const {
    const auto token = static_cast<std::size_t>(id);
    const Least least = least_of(token / kBlock);
    if (token % kBlock == least.place) return -std::log(least.exponential);
    return -std::log(least.exponential + exponential(uniform(bits(2 * token + 1))));
  }

  /// The largest of tokens kBlock·block, …, kBlock·block + kBlock − 1.
  double largest_of(std::size_t block) const { return -std::log(least_of(block).exponential); }

  /// Calls visit(id, Gumbel) for every token below `vocab` whose Gumbel is above `limit`, and perhaps, by
  /// rounding, for some just below it; ids ascend. Cost: V/kBlock random numbers, and kBlock for each block
  /// that has such a token.
  template <class Visit>
  void visit_above(double limit, std::size_t vocab, const Visit& visit) const {
    // E < most, and for a block's least: u > exp(−kBlock·most).
    const double most = std::exp(-limit) * kRoundedUp;
    const double lowest = std::exp(-static_cast<double>(kBlock) * most) * kRoundedDown;
    const std::size_t blocks = (vocab + kBlock - 1) / kBlock;
    for (std::size_t block = 0; block < blocks; ++block) {
      if (uniform(bits(2 * block)) < lowest) continue;
      const Least least = least_of(block);
      const double lowest_of_others = std::exp(least.exponential - most) * kRoundedDown;
      const std::size_t end = std::min(vocab, (block + 1) * kBlock);
      for (std::size_t token = block * kBlock; token < end; ++token) {
        if (token % kBlock == least.place) {
          visit(static_cast<TokenId>(token), -std::log(least.exponential));
          continue;
        }
        const double u = uniform(bits(2 * token + 1));
        if (u < lowest_of_others) continue;
        visit(static_cast<TokenId>(token), -std::log(least.exponential + exponential(u)));
      }
    }
  }

  /// A number in (0, 1) that is independent of the Gumbels.
  double coin() const { return uniform(bits(std::numeric_limits<std::uint64_t>::max())); }

 private:
  /// Room for the rounding of exponentials and logarithms.
  static constexpr double kRoundedUp = 1.0 + 1e-12;
  static constexpr double kRoundedDown = 1.0 - 1e-12;

  struct Least {
    double exponential;
    std::size_t place;  ///< in its block
  };

  std::uint64_t bits(std::uint64_t n) const { return detail::split_mix(key_, n); }

  /// One of 2⁵² equally likely numbers in (0, 1), of the upper bits.
  static double uniform(std::uint64_t random) { return (static_cast<double>(random >> 12) + 0.5) * 0x1p-52; }
  static double exponential(double uniform) { return -std::log(uniform); }

  Least least_of(std::size_t block) const {
    const std::uint64_t random = bits(2 * block);
    return {exponential(uniform(random)) / static_cast<double>(kBlock), random % kBlock};
  }

  std::uint64_t key_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE
