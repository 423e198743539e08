// SPDX-License-Identifier: Apache-2.0
#include "harness/text/wrapped.hpp"

#include <gtest/gtest.h>

namespace topksoftmax::bench {
namespace {

TEST(Wrapped, BreaksLinesBetweenWords) {
  EXPECT_EQ(wrapped("", 10), "");
  EXPECT_EQ(wrapped("one line", 10), "one line");
  EXPECT_EQ(wrapped("a line of ten and more", 9), "a line of\nten and\nmore");
  EXPECT_EQ(wrapped("µs µs µs", 5), "µs µs\nµs");  // characters count, not bytes
  EXPECT_EQ(wrapped("a wordthatislong b", 4), "a\nwordthatislong\nb");
}

}  // namespace
}  // namespace topksoftmax::bench
