// SPDX-License-Identifier: Apache-2.0
#include "harness/files/output_file.hpp"

#include <gtest/gtest.h>

#include <string>

#include "topksoftmax/error.hpp"

namespace topksoftmax {
namespace {

TEST(OutputFile, TriesAllAndThrowsTheFirstFailure) {
  std::string done;
  const auto succeed = [&done] { done += "done, "; };
  const auto fail = [](const char* what) { return [what] { throw Error(what); }; };
  bench::try_all({succeed, succeed});
  EXPECT_EQ(done, "done, done, ");
  try {
    bench::try_all({succeed, fail("first"), succeed, fail("second"), succeed});
    ADD_FAILURE() << "no failure";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
  EXPECT_EQ(done, "done, done, done, done, done, ");
}

}  // namespace
}  // namespace topksoftmax
