// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/decoding/random_stream.hpp"
#include "topksoftmax/shortlist/alignment_lists.hpp"

namespace topksoftmax {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<std::string> kSource = {"das", "haus", "ist", "gro\u00df"};
const std::vector<std::string> kTarget = {"the", "</s>", "house", "is", "home", "big", "tall", "."};

AlignmentLists read(const std::string& text) {
  std::istringstream in(text);
  return AlignmentLists::read_vocabulary_map(in, "vmap.txt", kSource, kTarget);
}

using Tokens = std::vector<TokenId>;

TEST(VocabularyMap, HasTargetsOfTokensOfPhrasesAndOfEverySentence) {
  const AlignmentLists lists = read(
      "\tthe .\n"
      "haus\thouse home house\r\n"
      "\n"
      "das haus\thome\n"
      "haus ist gro\u00df\ttall\n"
      "haus ist das\tbig\n"
      "ist\tis");
  EXPECT_EQ(lists.size(), 4U);
  EXPECT_EQ(lists.target_bound(), 8U);
  EXPECT_THAT(lists.always(), ElementsAre(0, 7, 1));
  EXPECT_THAT(lists.targets(0), IsEmpty());
  EXPECT_THAT(lists.targets(1), ElementsAre(2, 4));
  EXPECT_THAT(lists.targets(2), ElementsAre(3));
  EXPECT_THAT(lists.targets_of(Tokens{}), ElementsAre(0, 1, 7));
  EXPECT_THAT(lists.targets_of(Tokens{0}), ElementsAre(0, 1, 7));
  EXPECT_THAT(lists.targets_of(Tokens{0, 1}), ElementsAre(0, 1, 2, 4, 7));
  EXPECT_THAT(lists.targets_of(Tokens{2, 3}), ElementsAre(0, 1, 3, 7));
  EXPECT_THAT(lists.targets_of(Tokens{1, 2, 3}), ElementsAre(0, 1, 2, 3, 4, 6, 7));
  EXPECT_THAT(lists.targets_of(Tokens{1, 2, 0, 1, 2, 3}), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(lists.targets_of(Tokens{1, 2}), ElementsAre(0, 1, 2, 3, 4, 7));
}

TEST(VocabularyMap, FindsLongPhrasesThatHaveNoShorterOnes) {
  const AlignmentLists lists = read("das das das das\tbig\n");
  EXPECT_THAT(lists.targets_of(Tokens{0, 0, 0}), ElementsAre(1));
  EXPECT_THAT(lists.targets_of(Tokens{0, 0, 0, 0}), ElementsAre(1, 5));
  EXPECT_THAT(lists.targets_of(Tokens{1, 0, 0, 0, 0, 0}), ElementsAre(1, 5));
}

TEST(VocabularyMap, FindsAllPhrasesThatASentenceHas) {
  std::vector<std::string> targets;
  for (std::size_t i = 0; i < 200; ++i) targets.push_back("t" + std::to_string(i));
  RandomStream random(1);
  const auto draw_tokens = [&random](std::size_t most) {
    Tokens tokens(1 + static_cast<std::size_t>(random.uniform() * static_cast<double>(most)));
    for (TokenId& token : tokens) token = static_cast<TokenId>(random.uniform() * 3.0);
    return tokens;
  };
  std::vector<Tokens> phrases;
  std::string text;
  for (const std::string& target : targets) {
    phrases.push_back(draw_tokens(6));
    std::string line;
    for (const TokenId token : phrases.back()) {
      line += (line.empty() ? "" : " ") + kSource[static_cast<std::size_t>(token)];
    }
    text += line + "\t" + target + "\n";
  }
  std::istringstream in(text);
  const AlignmentLists lists = AlignmentLists::read_vocabulary_map(in, "vmap.txt", kSource, targets);
  for (int i = 0; i < 100; ++i) {
    const Tokens sentence = draw_tokens(12);
    Tokens expected;
    for (std::size_t p = 0; p < phrases.size(); ++p) {
      const bool is_last = std::find(phrases.begin() + static_cast<std::ptrdiff_t>(p) + 1, phrases.end(),
                                     phrases[p]) == phrases.end();
      const auto place = std::search(sentence.begin(), sentence.end(), phrases[p].begin(), phrases[p].end());
      if (is_last && place != sentence.end()) expected.push_back(static_cast<TokenId>(p));
    }
    EXPECT_EQ(lists.targets_of(sentence), expected);
  }
}

TEST(VocabularyMap, ComparesLongPhrasesOnceForEachToken) {
  constexpr std::size_t length = 5'000;
  std::string text = "das";
  for (std::size_t i = 1; i < length; ++i) text += " das";
  const AlignmentLists lists = read(text + "\tbig\n");
  EXPECT_THAT(lists.targets_of(Tokens(length, 0)), ElementsAre(1, 5));
  EXPECT_THAT(lists.targets_of(Tokens(length - 1, 0)), ElementsAre(1));
}

TEST(VocabularyMap, TakesTheLastOfSeveralLines) {
  const AlignmentLists lists = read("ist\tthe big\nist\tis\n\tbig\n\thome\n");
  EXPECT_THAT(lists.targets(2), ElementsAre(3));
  EXPECT_THAT(lists.always(), ElementsAre(4, 1));
  EXPECT_EQ(lists.target_bound(), 5U);
}

TEST(VocabularyMap, PassesOverWordsThatAVocabularyDoesNotHave) {
  const AlignmentLists lists =
      read("das auto\tbig\ndas\tcar the\nhaus\t\nist  gro\u00df\ttall\nist\tis  big \n");
  EXPECT_THAT(lists.targets(0), ElementsAre(0));
  EXPECT_THAT(lists.targets(1), IsEmpty());
  EXPECT_THAT(lists.targets(2), ElementsAre(3, 5));
  EXPECT_THAT(lists.targets_of(Tokens{0, 1, 2, 3}), ElementsAre(0, 1, 3, 5));
}

TEST(VocabularyMap, AnEmptyMapHasEmptyLists) {
  EXPECT_THAT(read("").targets_of(Tokens{0, 3}), ElementsAre(1));
  std::istringstream in("");
  EXPECT_EQ(AlignmentLists::read_vocabulary_map(in, "vmap.txt", {}, {}).target_bound(), 0U);
}

TEST(VocabularyMap, SaysWhichLineIsWrong) {
  const std::string expected = ": it must be source words, a tab, and target words";
  EXPECT_EQ(error_of([] { read("das\tthe\n\nhaus house\n"); }), "vmap.txt, line 3" + expected);
  EXPECT_EQ(error_of([] { read("das\tthe\tis\n"); }), "vmap.txt, line 1" + expected);
}

TEST(VocabularyMap, RefusesSourceTokensThatItDoesNotHave) {
  EXPECT_THAT(error_of([] { read("").targets_of(Tokens{4}); }),
              HasSubstr("source token 4 is not one of the 4 that the lists have"));
  EXPECT_THAT(error_of([] { read("").targets_of(Tokens{0, -1}); }), HasSubstr("source token -1"));
}

TEST(VocabularyMap, IsReadFromAFile) {
  const testing::TemporaryFolder folder;
  const auto path = folder.write("vmap.txt", "ist\tis\n");
  EXPECT_THAT(AlignmentLists::read_vocabulary_map(path, kSource, kTarget).targets(2), ElementsAre(3));
  EXPECT_THAT(
      error_of([&] { AlignmentLists::read_vocabulary_map(folder.path() / "absent", kSource, kTarget); }),
      HasSubstr("absent: cannot read: No such file"));
  std::ifstream in(folder.path() / "absent");
  EXPECT_EQ(error_of([&] { AlignmentLists::read_vocabulary_map(in, "vmap.txt", kSource, kTarget); }),
            "vmap.txt: cannot be read");
}

}  // namespace
}  // namespace topksoftmax
