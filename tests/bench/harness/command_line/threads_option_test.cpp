// SPDX-License-Identifier: Apache-2.0
#include "harness/command_line/threads_option.hpp"

#include <gtest/gtest.h>

#include "harness/command_line/usage_error.hpp"

namespace topksoftmax::bench {
namespace {

TEST(ThreadsOption, ThreadsShareTheContextsOfABatch) {
  EXPECT_NO_THROW(check_threads(8, 1));
  EXPECT_NO_THROW(check_threads(8, 8));
  try {
    check_threads(8, 7, ", or --batch 1");
    FAIL() << "more threads than contexts";
  } catch (const UsageError& error) {
    EXPECT_STREQ(
        error.what(),
        "--threads 8 needs --batch 8 or more, as threads share the contexts of a batch, or --batch 1");
  }
}

}  // namespace
}  // namespace topksoftmax::bench
