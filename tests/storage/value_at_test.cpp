// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/storage/value_at.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace topksoftmax {
namespace {

TEST(ValueAt, MayBeginAtAnyByte) {
  const std::array<std::uint32_t, 3> values = {17, 0xFFFF'FFFFU, 1};
  std::array<std::byte, sizeof(values) + 3> bytes{};
  for (const std::size_t offset : {0U, 1U, 3U}) {
    std::memcpy(bytes.data() + offset, values.data(), sizeof(values));
    EXPECT_EQ(detail::value_at<std::uint32_t>(bytes.data() + offset), values[0]);
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(detail::value_at<std::uint32_t>(bytes.data() + offset, i), values[i]);
    }
  }
}

}  // namespace
}  // namespace topksoftmax
