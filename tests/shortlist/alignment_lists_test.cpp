// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/shortlist/alignment_lists.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "topksoftmax/error.hpp"

namespace topksoftmax {
namespace {

using testing::error_of;

const std::vector<std::string> kSource = {"</s>", "das", "haus", "ist"};
const std::vector<std::string> kTarget = {"</s>", "the", "house", "is", "home"};

AlignmentLists read(const std::string& text, std::size_t per_source = 100) {
  std::istringstream in(text);
  return AlignmentLists::read(in, "lex.s2t", kSource, kTarget, per_source);
}

std::vector<TokenId> targets(const AlignmentLists& lists, TokenId source) {
  const auto span = lists.targets(source);
  return {span.begin(), span.end()};
}

/// What it complains of.
std::string complaint(const std::string& text) {
  return error_of([&] { read(text); });
}

TEST(AlignmentLists, KeepTheLikeliestTargetsInOrder) {
  const AlignmentLists lists = read(
      "home haus 0.25\n"
      "house haus 0.7\n"
      "the\tdas\t9.5e-1\r\n"
      "\n"
      "is haus 0.25\n"
      "is ist 1\n");
  EXPECT_EQ(lists.size(), 4U);
  EXPECT_EQ(lists.target_bound(), 5U);
  EXPECT_EQ(targets(lists, 0), (std::vector<TokenId>{}));
  EXPECT_EQ(targets(lists, 1), (std::vector<TokenId>{1}));
  EXPECT_EQ(targets(lists, 2), (std::vector<TokenId>{2, 3, 4}));
  EXPECT_EQ(targets(lists, 3), (std::vector<TokenId>{3}));
}

TEST(AlignmentLists, KeepNoMoreThanAskedForAndEachOnce) {
  const std::string text = "home haus 0.2\nhouse haus 0.7\nhouse haus 0.6\nis haus 0.1\n";
  EXPECT_EQ(targets(read(text, 2), 2), (std::vector<TokenId>{2, 4}));
  EXPECT_EQ(targets(read(text, 0), 2), (std::vector<TokenId>{}));
}

TEST(AlignmentLists, PassOverUnknownWords) {
  const AlignmentLists lists = read("NULL das 0.5\nthe NULL 0.5\nthe das 0.4\n");
  EXPECT_EQ(targets(lists, 1), (std::vector<TokenId>{1}));
}

TEST(AlignmentLists, AnEmptyTableHasEmptyLists) {
  EXPECT_EQ(read("").target_bound(), 0U);
  EXPECT_EQ(targets(read(""), 3), (std::vector<TokenId>{}));
}

TEST(AlignmentLists, SayWhichLineIsWrong) {
  EXPECT_EQ(complaint("the das 0.5\nthe das\n"), "lex.s2t, line 2: it must be \"target source probability\"");
  EXPECT_EQ(complaint("the das 0.5 0.5\n"), "lex.s2t, line 1: it must be \"target source probability\"");
  for (const char* number :
       {"1.5", "-0.1", "nan", "inf", "0.5x", "half", "1e999", "1e+999", "-1e999", "1e-999junk", "1e-999-",
        "-1e-999", "1e99999999999999999999", "0.001e999", "1e999e-9999"}) {
    EXPECT_EQ(complaint("the das 1\n\nthe das " + std::string(number)),
              "lex.s2t, line 3: \"" + std::string(number) +
                  "\" is not a probability; it must be a number from 0 to 1");
  }
}

TEST(AlignmentLists, TakeProbabilitiesBelowAnyFloatForZero) {
  const std::string zeros(400, '0');
  for (const std::string& number :
       {std::string("1e-999"), std::string("123.4E-999"), std::string("1e-99999999999999999999"),
        "0." + zeros + "1", "0." + zeros + "1e+300", "1" + zeros + "e-800"}) {
    const AlignmentLists lists = read("house haus " + number + "\nthe haus 0\nhome haus 1e-30\n");
    EXPECT_EQ(targets(lists, 2), (std::vector<TokenId>{4, 1, 2})) << number;
  }
  EXPECT_NE(complaint("the das 1" + zeros), "");
  EXPECT_NE(complaint("the das 1" + zeros + "e-300"), "");
}

TEST(AlignmentLists, HaveNoSourceTokensUnlessRead) {
  EXPECT_EQ(AlignmentLists().size(), 0U);
  EXPECT_EQ(AlignmentLists().target_bound(), 0U);
}

TEST(AlignmentLists, RefuseWordsThatAreTwiceInAVocabulary) {
  std::istringstream in("the das 0.5\n");
  EXPECT_EQ(error_of([&] {
              AlignmentLists::read(in, "lex", kSource, std::vector<std::string>{"a\x1b", "b", "a\x1b"});
            }),
            "lex: the target vocabulary has \"a\\u001b\" twice");
}

TEST(AlignmentLists, RefuseAFileThatIsNotThere) {
  EXPECT_THROW(AlignmentLists::read(std::filesystem::path("/nonexistent/lex"), kSource, kTarget), Error);
  std::ifstream in("/nonexistent/lex");
  EXPECT_EQ(error_of([&] { AlignmentLists::read(in, "lex", kSource, kTarget); }), "lex: cannot be read");
}

TEST(AlignmentLists, TakeLongListsInATimeThatGrowsWithThem) {
  constexpr std::size_t count = 200'000;
  std::vector<std::string> vocab;
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    vocab.push_back("t" + std::to_string(i));
    text += vocab.back() + " das 0.5\n";
  }
  text += "t7 das 0.25\n";
  std::istringstream in(text);
  const AlignmentLists lists = AlignmentLists::read(in, "lex", kSource, vocab, vocab.size());
  EXPECT_EQ(lists.targets(1).size(), count);
}

}  // namespace
}  // namespace topksoftmax
