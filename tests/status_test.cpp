// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/status.hpp"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <vector>

#include "support/layers.hpp"
#include "topksoftmax/fused.hpp"

namespace topksoftmax {
namespace {

TEST(Status, SaysWhatWasThrown) {
  EXPECT_TRUE(attempt([] {}));
  const Status refused = attempt([] { throw Error("l2s: no"); });
  EXPECT_FALSE(refused);
  EXPECT_EQ(refused.code, StatusCode::error);
  EXPECT_EQ(refused.message, "l2s: no");
  EXPECT_EQ(attempt([] { throw std::invalid_argument("k"); }).code, StatusCode::invalid_argument);
  EXPECT_EQ(attempt([] { throw std::bad_alloc(); }).code, StatusCode::out_of_memory);
  EXPECT_EQ(attempt([] { throw std::runtime_error("own"); }).message, "own");
  EXPECT_EQ(attempt([] { throw 3; }).code, StatusCode::other);
}

TEST(Status, QueriesThrowNothing) {
  const auto head = Fused::make(testing::random_layer(50, 6, 1));
  const std::vector<float> h(12, 0.5F);
  Workspace workspace;
  TopK answer;
  EXPECT_TRUE(try_query(*head, {h.data(), 6}, {.k = 3}, workspace, answer));
  EXPECT_EQ(answer.size(), 3U);
  const Status wrong = try_query(*head, {h.data(), 5}, {.k = 2}, workspace, answer);
  EXPECT_EQ(wrong.code, StatusCode::invalid_argument);
  EXPECT_NE(wrong.message.find("h has 5 values"), std::string::npos);
  EXPECT_EQ(answer.size(), 3U) << "it stays as it was";

  std::vector<Workspace> workspaces(2);
  std::vector<TokenId> ids(4, -7);
  const FlatAnswers flat{.ids = ids.data()};
  EXPECT_TRUE(try_query_batch(*head, h.data(), 2, 6, 6, {.k = 2}, workspaces, flat));
  EXPECT_EQ(ids[0], answer.ids[0]);
  EXPECT_EQ(try_query_batch(*head, h.data(), 2, 6, 6, {.k = 0}, workspaces, flat).code,
            StatusCode::invalid_argument);
}

}  // namespace
}  // namespace topksoftmax
