// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/temporary_folder.hpp"
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
}

}  // namespace
}  // namespace topksoftmax
