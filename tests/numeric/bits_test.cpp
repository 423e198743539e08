// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/numeric/bits.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
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

}  // namespace
}  // namespace topksoftmax
