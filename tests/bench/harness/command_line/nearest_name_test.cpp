// SPDX-License-Identifier: Apache-2.0
#include "harness/command_line/nearest_name.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace topksoftmax::bench {
namespace {

TEST(NearestName, IsTheOneOfTheFewestChanges) {
  const std::vector<std::string> names = {"--head", "--threads", "--sampling", "--k"};
  EXPECT_EQ(did_you_mean("--thread", names), "; did you mean --threads?");
  EXPECT_EQ(did_you_mean("--haed", names), "; did you mean --head?");
  EXPECT_EQ(did_you_mean("--heat", std::vector<std::string>{"--heap", "--head"}), "; did you mean --heap?");
}

TEST(NearestName, MayDifferInAThirdOfTheLongerName) {
  const std::vector<std::string> names = {"--sampling"};
  EXPECT_EQ(did_you_mean("--sample", names), "; did you mean --sampling?");
  EXPECT_EQ(did_you_mean("--sampl", names), "; did you mean --sampling?");
  EXPECT_EQ(did_you_mean("--samp", names), "");
  EXPECT_EQ(did_you_mean("--sampling-of-them", std::vector<std::string>{"--sampling"}), "");
}

TEST(NearestName, MayDifferInOneLetterHoweverShort) {
  const std::vector<std::string> names = {"-k"};
  EXPECT_EQ(did_you_mean("k", names), "; did you mean -k?");
  EXPECT_EQ(did_you_mean("xy", names), "");
  EXPECT_EQ(did_you_mean("", names), "");
  EXPECT_EQ(did_you_mean("k", {}), "");
}

}  // namespace
}  // namespace topksoftmax::bench
