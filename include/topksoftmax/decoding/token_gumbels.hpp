// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/numeric/gumbel_blocks.hpp"
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
/// exponential again: it has no memory. So a block has its least one, then that of the others, then that of
/// what is left, and then these.
/// Random bits are outputs of SplitMix64 (Steele et al. 2014), seeded with the key, by their number.
class TokenGumbels {
 public:
  /// Tokens of a block: ids from a multiple of this on.
  static constexpr std::size_t kBlock = detail::GumbelBlocks::kTokens;

  /// The variables of this key.
  explicit TokenGumbels(std::uint64_t key) : key_(key) {}

  /// That of a token.
  double operator[](TokenId id) const {
    const auto token = static_cast<std::size_t>(id);
    const std::size_t block = token / kBlock;
    std::size_t places[kRanked];
    double sum = 0.0;
    for (std::size_t rank = 0; rank < kRanked; ++rank) {
      sum += exponential(uniform_of(block, rank)) / behind(rank);
      places[rank] = place_of(block, rank, places);
      if (places[rank] == token % kBlock) return -std::log(sum);
    }
    return -std::log(sum + exponential(uniform(own_bits(token))));
  }

  /// The largest of tokens kBlock·block, …, kBlock·block + kBlock − 1.
  double largest_of(std::size_t block) const {
    return -std::log(exponential(uniform_of(block, 0)) / behind(0));
  }

  /// Whether the largest of such a block may reach a number: false only where it does not.
  bool largest_may_reach(std::size_t block, double number) const {
    return may_reach(least_exponential(uniform_of(block, 0)) / behind(0), number);
  }

  /// The same of one whose exponential is no less than `least`. No logarithm is taken.
  static bool may_reach(double least, double number) {
    if (!(number > 0.0)) return true;
    // It is at most −log least, and exp(number) at least (1 + number/32)³².
    double power = 1.0 + number / 32.0;
    for (int i = 0; i < 5; ++i) power *= power;
    return least * power * Layout::kRoundedDown <= 1.0;
  }

  /// Calls visit(id, least) for every token below `vocab` whose Gumbel may be above `limit`: its exponential
  /// is no less than `least`, so the Gumbel no more than −log least, and no logarithm is taken. Few are below
  /// the limit where few are above it. Cost: V/kBlock random numbers, and two for each token that is visited,
  /// or kBlock where a block has more than three.
  template <class Visit>
  void visit_possible(double limit, std::size_t vocab, const Visit& visit) const {
    // E < most, and for a block's least: u > exp(−kBlock·most).
    const double most = std::exp(-limit) * Layout::kRoundedUp;
    const double lowest = std::exp(-static_cast<double>(kBlock) * most) * Layout::kRoundedDown;
    const std::size_t blocks = (vocab + kBlock - 1) / kBlock;
    const auto lowest_bits = static_cast<std::uint64_t>(lowest * 0x1p52);
    Some some{};
    for (std::size_t first = 0; first < blocks; first += kAtOnce) {
      const std::size_t count =
          kernels::blocks_above(key_, first, std::min(kAtOnce, blocks - first), lowest_bits, some.blocks);
      kernels::ranks_of_blocks(key_, some.blocks, count, kRoom, some.least[0], some.places[0]);
      for (std::size_t i = 0; i < count; ++i) visit_block(some, i, most, vocab, visit);
    }
  }

  /// What the exponentials of tokens are no less than: least[i] that of ids[i], so its Gumbel is no more than
  /// −log least[i]. No logarithm is taken.
  void least_exponentials(std::span<const TokenId> ids, double* least) const {
    kernels::least_exponentials(key_, ids.data(), ids.size(), least);
  }

  /// A number in (0, 1) that is independent of the Gumbels.
  double coin() const { return uniform(bits(std::numeric_limits<std::uint64_t>::max())); }

 private:
  using Layout = detail::GumbelBlocks;
  static constexpr std::size_t kRanked = Layout::kRanked;
  static constexpr std::size_t kNumbers = Layout::kNumbers;
  /// Blocks that are looked at before those among them that matter are visited.
  static constexpr std::size_t kAtOnce = 128;
  static constexpr std::size_t kRoom = kAtOnce + kernels::kSlack;

  /// Blocks that may matter, with their ranks.
  struct Some {
    std::uint64_t blocks[kRoom];
    double least[kRanked][kRoom];
    std::uint64_t places[kRanked][kRoom];
  };

  std::uint64_t bits(std::uint64_t n) const { return detail::split_mix(key_, n); }
  std::uint64_t own_bits(std::size_t token) const {
    return bits(kNumbers * (token / kBlock) + kBlock + token % kBlock);
  }

  /// One of 2⁵² equally likely numbers in (0, 1), of the upper bits.
  static double uniform(std::uint64_t random) { return (static_cast<double>(random >> 12) + 0.5) * 0x1p-52; }
  static std::size_t number_of(std::size_t block, std::size_t rank) {
    return kNumbers * block + Layout::number_of(rank);
  }
  /// The number that a rank's exponential is made of.
  double uniform_of(std::size_t block, std::size_t rank) const {
    return uniform(bits(number_of(block, rank)));
  }
  static constexpr double behind(std::size_t rank) { return static_cast<double>(Layout::behind(rank)); }

  /// The place of a rank, which is none of those before it.
  std::size_t place_of(std::size_t block, std::size_t rank, const std::size_t* before) const {
    if (rank == 0) return bits(number_of(block, 0)) % kBlock;
    // 32 bits: each place as likely as another within 2⁻²⁸.
    const std::uint64_t random = bits(number_of(block, rank) + 1) >> 32;
    std::size_t place = (random * (kBlock - rank)) >> 32;
    if (rank == 1) return place + std::size_t{place >= before[0]};
    place += std::size_t{place >= std::min(before[0], before[1])};
    return place + std::size_t{place >= std::max(before[0], before[1])};
  }

  static double exponential(double uniform) { return -std::log(uniform); }
  /// No more than that, without the logarithm: the beginning of its series in x = 1 − u.
  static double least_exponential(double uniform) {
    const double x = 1.0 - uniform;
    return x * (1.0 + x * (0.5 + x * (1.0 / 3.0))) * Layout::kRoundedDown;
  }

  /// visit_possible() in one of the blocks.
  template <class Visit>
  void visit_block(const Some& some, std::size_t i, double most, std::size_t vocab,
                   const Visit& visit) const {
    const std::size_t begin = some.blocks[i] * kBlock;
    const auto visit_at = [&](std::size_t place, double least) {
      if (begin + place < vocab) visit(static_cast<TokenId>(begin + place), least);
    };
    bool is_ranked[kBlock] = {};
    for (std::size_t rank = 0; rank < kRanked; ++rank) {
      if (some.least[rank][i] >= most) return;
      is_ranked[some.places[rank][i]] = true;
      visit_at(some.places[rank][i], some.least[rank][i]);
    }
    for (std::size_t place = 0; place < kBlock; ++place) {
      if (is_ranked[place]) continue;
      const double own = some.least[kRanked - 1][i] + least_exponential(uniform(own_bits(begin + place)));
      if (own < most) visit_at(place, own);
    }
  }

  std::uint64_t key_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE
