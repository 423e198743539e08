// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/numeric/bits.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace topksoftmax {
namespace {

std::vector<std::size_t> visited(std::uint64_t bits) {
  std::vector<std::size_t> found;
  detail::visit_bits(bits, [&](std::size_t i) { found.push_back(i); });
  return found;
}

TEST(VisitBits, RiseFromTheLowest) {
  EXPECT_EQ(visited(0), std::vector<std::size_t>());
  EXPECT_EQ(visited(0x8000'0000'0000'0015U), (std::vector<std::size_t>{0, 2, 4, 63}));
  EXPECT_EQ(visited(~std::uint64_t{0}).size(), 64U);
}

TEST(CountBits, CountsThoseOfAllWords) {
  std::mt19937_64 random(3);
  for (std::size_t count = 0; count < 40; ++count) {
    for (const int kind : {0, 1, 2}) {
      std::vector<std::uint64_t> words(count);
      std::size_t expected = 0;
      for (std::uint64_t& word : words) {
        word = kind == 0 ? random() : kind == 1 ? random() & random() & random() : ~std::uint64_t{0};
        for (int bit = 0; bit < 64; ++bit) expected += word >> bit & 1;
      }
      const std::size_t found = detail::count_bits(count, [&](std::size_t i) { return words[i]; });
      EXPECT_EQ(found, expected) << count << " words";
    }
  }
}

}  // namespace
}  // namespace topksoftmax
