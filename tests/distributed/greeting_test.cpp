// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/distributed/greeting.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "distributed/ranks.hpp"
#include "support/errors.hpp"

namespace topksoftmax {
namespace {

using testing::error_of;
using testing::rank_count;
using testing::this_rank;

/// What all ranks say to prefaces of which that of rank 1 is another one.
std::string said_of(const detail::Preface& of_rank_1) {
  detail::Communicator ranks(MPI_COMM_WORLD);
  const detail::Preface ours{.greeting_bytes = sizeof(detail::Greeting)};
  const detail::Greeting greeting{
      .first = this_rank(), .last = this_rank() + 1, .vocab = rank_count(), .dim = 4};
  return error_of([&] { detail::greet(ranks, greeting, this_rank() == 1 ? of_rank_1 : ours); });
}

TEST(Greeting, OfOneVersionIsUnderstood) {
  EXPECT_EQ(said_of({.greeting_bytes = sizeof(detail::Greeting)}), "");
}

TEST(Greeting, OfAnotherVersionIsRefusedByAllRanks) {
  if (rank_count() == 1) GTEST_SKIP() << "there is no rank 1";
  EXPECT_EQ(said_of({.version = 7, .greeting_bytes = sizeof(detail::Greeting)}),
            "sharded: rank 1 sends messages of version 7, rank 0 of version " +
                std::to_string(detail::kMessageVersion) +
                "; run the same build of the library on every rank");
}

TEST(Greeting, OfAnotherSizeIsRefusedByAllRanks) {
  if (rank_count() == 1) GTEST_SKIP() << "there is no rank 1";
  EXPECT_NE(said_of({.greeting_bytes = 128}).find("run the same build"), std::string::npos);
}

detail::Greeting rank_with(std::size_t first, std::size_t last, const char* instruction_set) {
  detail::Greeting greeting{.first = first, .last = last, .vocab = 9, .dim = first == last ? 0U : 4U};
  if (first != last) detail::put_text(greeting.instruction_set, instruction_set);
  return greeting;
}

TEST(Greeting, OfOtherProcessorsIsRefused) {
  const std::vector<detail::Greeting> ranks = {rank_with(0, 0, ""), rank_with(0, 3, "AVX2"),
                                               rank_with(3, 3, ""), rank_with(3, 9, "SSE4")};
  EXPECT_EQ(error_of([&] { detail::check_slices(ranks); }), "");
  EXPECT_EQ(
      error_of([&] { detail::check_kinds(ranks); }),
      "sharded: rank 3 has the instruction set SSE4, rank 1 has the instruction set AVX2; all must have "
      "slices of one layer, and the same backend");
}

TEST(Greeting, TextsAreCutToTheirRoom) {
  char text[8] = {};
  detail::put_text(text, "certified:everything");
  EXPECT_STREQ(text, "certifi");
}

}  // namespace
}  // namespace topksoftmax
