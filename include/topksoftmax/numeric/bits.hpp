// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Calls visit(i) for every bit i that is set, the lowest first.
template <class Visit>
void visit_bits(std::uint64_t bits, const Visit& visit) {
  for (; bits != 0; bits &= bits - 1) visit(static_cast<std::size_t>(std::countr_zero(bits)));
}

/// A digit of a sum of bits, at each of 64 places, and what is carried to the next one.
struct CarrySave {
  std::uint64_t digit;
  std::uint64_t carry;
};

/// Adds three bits at each place.
constexpr CarrySave carry_save(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  return {a ^ b ^ c, (a & b) | ((a ^ b) & c)};
}

/// How many bits of `count` words are set, of which word(i) is one. Where no instruction may be taken for
/// granted that counts bits, that is a call: here one for eight words, which carry-save adders sum up before
/// (Harley and Seal).
template <class Word>
std::size_t count_bits(std::size_t count, const Word& word) {
  const auto bits_of = [](std::uint64_t bits) { return static_cast<std::size_t>(std::popcount(bits)); };
  std::uint64_t ones = 0;
  std::uint64_t twos = 0;
  std::uint64_t fours = 0;
  std::size_t eights = 0;
  std::size_t i = 0;
  // Two words to the ones; what these carry is a bit of the twos.
  const auto add_two = [&](std::size_t at) {
    const CarrySave sum = carry_save(ones, word(at), word(at + 1));
    ones = sum.digit;
    return sum.carry;
  };
  // Four of them to the twos likewise.
  const auto add_four = [&](std::size_t at) {
    const std::uint64_t first = add_two(at);
    const CarrySave sum = carry_save(twos, first, add_two(at + 2));
    twos = sum.digit;
    return sum.carry;
  };
  for (; i + 8 <= count; i += 8) {
    const std::uint64_t first = add_four(i);
    const CarrySave sum = carry_save(fours, first, add_four(i + 4));
    fours = sum.digit;
    eights += bits_of(sum.carry);
  }
  std::size_t total = 8 * eights + 4 * bits_of(fours) + 2 * bits_of(twos) + bits_of(ones);
  for (; i < count; ++i) total += bits_of(word(i));
  return total;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
