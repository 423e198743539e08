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
/// A Gumbel is −log E with E exponential. Of n exponentials the least is exponential too, with a mean n times
/// smaller, and belongs to each of the tokens alike; what the others exceed it by is independent of it, and
/// exponential again: it has no memory. So a block has its least one, then that of the others, then these.
/// Random bits are outputs of SplitMix64 (Steele et al. 2014), seeded with the key, by their number.
class TokenGumbels {
 public:
  /// Tokens of a block: ids from a multiple of this on.
  static constexpr std::size_t kBlock = 16;

  /// The variables of this key.
  explicit TokenGumbels(std::uint64_t key) : key_(key) {}

  /// That of a token.
  double operator[](TokenId id) const {
    const auto token = static_cast<std::size_t>(id);
    const std::size_t block = token / kBlock;
    const Ranked least = least_of(block);
    if (token % kBlock == least.place) return -std::log(least.exponential);
    const Ranked second = second_of(block, least);
    if (token % kBlock == second.place) return -std::log(second.exponential);
    return -std::log(second.exponential + exponential(uniform(own_bits(token))));
  }

  /// The largest of tokens kBlock·block, …, kBlock·block + kBlock − 1.
  double largest_of(std::size_t block) const { return -std::log(least_of(block).exponential); }

  /// Calls visit(id, Gumbel) for every token below `vocab` whose Gumbel is above `limit`, and perhaps, by
  /// rounding, for some just below it; ids ascend. Cost: V/kBlock random numbers, two more for each block
  /// that has such a token, and kBlock for each that has two.
  template <class Visit>
  void visit_above(double limit, std::size_t vocab, const Visit& visit) const {
    // E < most, and for a block's least: u > exp(−kBlock·most).
    const double most = std::exp(-limit) * kRoundedUp;
    const double lowest = std::exp(-static_cast<double>(kBlock) * most) * kRoundedDown;
    const std::size_t blocks = (vocab + kBlock - 1) / kBlock;
    for (std::size_t block = 0; block < blocks; ++block) {
      if (uniform(bits(kNumbers * block)) >= lowest) visit_block(block, most, vocab, visit);
    }
  }

  /// A number in (0, 1) that is independent of the Gumbels.
  double coin() const { return uniform(bits(std::numeric_limits<std::uint64_t>::max())); }

 private:
  /// Allowance for the rounding of exponentials and logarithms.
  static constexpr double kRoundedUp = 1.0 + 1e-12;
  static constexpr double kRoundedDown = 1.0 - 1e-12;

  /// Numbers of a block's random bits: of its least one, of the second one and of that one's place; behind
  /// these those of its tokens.
  static constexpr std::size_t kNumbers = 2 * kBlock;

  struct Ranked {
    double exponential;
    std::size_t place;  ///< in its block
  };

  std::uint64_t bits(std::uint64_t n) const { return detail::split_mix(key_, n); }
  std::uint64_t own_bits(std::size_t token) const {
    return bits(kNumbers * (token / kBlock) + kBlock + token % kBlock);
  }

  /// One of 2⁵² equally likely numbers in (0, 1), of the upper bits.
  static double uniform(std::uint64_t random) { return (static_cast<double>(random >> 12) + 0.5) * 0x1p-52; }
  static double exponential(double uniform) { return -std::log(uniform); }

  Ranked least_of(std::size_t block) const {
    const std::uint64_t random = bits(kNumbers * block);
    return {exponential(uniform(random)) / static_cast<double>(kBlock), random % kBlock};
  }

  Ranked second_of(std::size_t block, const Ranked& least) const {
    constexpr std::size_t others = kBlock - 1;
    const double excess = exponential(uniform(bits(kNumbers * block + 1))) / static_cast<double>(others);
    // 32 bits: each place as likely as another within 2⁻²⁸.
    const std::size_t place = ((bits(kNumbers * block + 2) >> 32) * others) >> 32;
    return {least.exponential + excess, place < least.place ? place : place + 1};
  }

  /// visit_above() in a block whose least exponential may be below `most`.
  template <class Visit>
  void visit_block(std::size_t block, double most, std::size_t vocab, const Visit& visit) const {
    const std::size_t begin = block * kBlock;
    const auto visit_at = [&](std::size_t place, double exponential) {
      if (begin + place < vocab) visit(static_cast<TokenId>(begin + place), -std::log(exponential));
    };
    const Ranked least = least_of(block);
    // −log u ≥ 1 − u: for most blocks this says as much as the second one.
    const double little = (1.0 - uniform(bits(kNumbers * block + 1))) / static_cast<double>(kBlock - 1);
    if (least.exponential + little >= most) return visit_at(least.place, least.exponential);
    const Ranked second = second_of(block, least);
    if (second.exponential >= most) return visit_at(least.place, least.exponential);
    const double lowest_of_others = std::exp(second.exponential - most) * kRoundedDown;
    for (std::size_t place = 0; place < kBlock; ++place) {
      if (place == least.place) {
        visit_at(place, least.exponential);
      } else if (place == second.place) {
        visit_at(place, second.exponential);
      } else if (const double u = uniform(own_bits(begin + place)); u >= lowest_of_others) {
        visit_at(place, second.exponential + exponential(u));
      }
    }
  }

  std::uint64_t key_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE
