// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/storage/aligned_storage.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace topksoftmax {
namespace {

TEST(AlignedStorage, IsZeroAndBeginsWhereItsSizeAsksForIt) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{65}, 2 * detail::kHugePage - 1,
                                  2 * detail::kHugePage, 3 * detail::kHugePage + 5}) {
    const detail::AlignedStorage storage = detail::aligned_zeros(bytes);
    const std::size_t alignment = bytes < 2 * detail::kHugePage ? 64 : detail::kHugePage;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(storage.get()) % alignment, 0U) << bytes;
    EXPECT_TRUE(
        std::all_of(storage.get(), storage.get() + bytes, [](std::byte b) { return b == std::byte{}; }));
  }
}

}  // namespace
}  // namespace topksoftmax
