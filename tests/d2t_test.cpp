// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/d2t.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "support/errors.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {
namespace {

using testing::error_of;

TEST(TokenIdsFromD2t, AreRowsAndTheirOffsets) {
  const std::vector<std::int64_t> d2t = {0, 0, 3, 3, 10};
  EXPECT_EQ(token_ids_from_d2t(d2t), (std::vector<TokenId>{0, 1, 5, 6, 14}));
  EXPECT_TRUE(token_ids_from_d2t({}).empty());
}

TEST(TokenIdsFromD2t, AreRefusedWhereASumIsNoId) {
  const std::vector<std::int64_t> negative = {0, -2};
  EXPECT_EQ(error_of([&] { token_ids_from_d2t(negative); }),
            "mapped: d2t has -2 for row 1; with the row's number it must be an id, at least 0 and at most "
            "2147483646");
  const std::vector<std::int64_t> large = {0, std::numeric_limits<std::int64_t>::max()};
  EXPECT_NE(error_of([&] { token_ids_from_d2t(large); }), "");
  // One more than the highest id is the number of tokens, which a TokenId has room for.
  const std::vector<std::int64_t> highest = {0, 2147483645};
  EXPECT_EQ(token_ids_from_d2t(highest).back(), 2147483646);
  const std::vector<std::int64_t> above = {0, 2147483646};
  EXPECT_NE(error_of([&] { token_ids_from_d2t(above); }), "");
}

}  // namespace
}  // namespace topksoftmax
