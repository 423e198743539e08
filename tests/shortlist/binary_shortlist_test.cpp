// SPDX-License-Identifier: Apache-2.0
#include "support/binary_shortlist.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/shortlist/alignment_lists.hpp"

namespace topksoftmax {
namespace {

using testing::binary_shortlist;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kHuge = std::uint64_t{1} << 63;

const std::vector<std::string> kSource = {"</s>", "das", "haus", "ist"};
const std::vector<std::string> kTarget = {"</s>", "the", "house", "is", "home"};

AlignmentLists read(const std::string& bytes) {
  std::istringstream in(bytes);
  return AlignmentLists::read(in, "lex.bin", kSource, kTarget, 1);
}

std::string complaint(const std::string& bytes) {
  return error_of([&] { read(bytes); });
}

TEST(BinaryShortlist, HasListsAndWhatEverySentenceHas) {
  const AlignmentLists lists = read(binary_shortlist(2, {0, 1, 1, 4, 5}, {0, 2, 3, 4, 3}));
  EXPECT_EQ(lists.size(), 4U);
  EXPECT_EQ(lists.target_bound(), 5U);
  EXPECT_THAT(lists.always(), ElementsAre(0, 1));
  EXPECT_THAT(lists.targets(0), ElementsAre(0));
  EXPECT_THAT(lists.targets(1), IsEmpty());
  EXPECT_THAT(lists.targets(2), ElementsAre(2, 3, 4));
  EXPECT_THAT(lists.targets(3), ElementsAre(3));
  EXPECT_THAT(lists.targets_of(std::vector<TokenId>{3, 1}), ElementsAre(0, 1, 3));
}

TEST(BinaryShortlist, MayEndBeforeTheVocabularyAndRepeatTargets) {
  const AlignmentLists lists = read(binary_shortlist(100, {1, 4}, {3, 2, 2, 2}));
  EXPECT_EQ(lists.size(), 4U);
  EXPECT_THAT(lists.targets(0), ElementsAre(2));
  EXPECT_THAT(lists.targets(3), IsEmpty());
  EXPECT_THAT(lists.always(), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(read(binary_shortlist(0, {0}, {})).targets(0), IsEmpty());
  EXPECT_EQ(read(binary_shortlist(0, {0}, {})).target_bound(), 0U);
}

TEST(BinaryShortlist, IsReadFromAFileLikeText) {
  const testing::TemporaryFolder folder;
  const auto path = folder.write("lex.bin", binary_shortlist(0, {0, 0, 2}, {1, 2}));
  EXPECT_THAT(AlignmentLists::read(path, kSource, kTarget).targets(1), ElementsAre(1, 2));
}

TEST(BinaryShortlist, IsNotWhatOnlyBeginsWithTheSameByte) {
  const std::vector<std::string> source = {"\xf5"};
  std::istringstream in("\xf5 \xf5 0.5\n\xf5 \xf5 0.25\n");
  EXPECT_THAT(AlignmentLists::read(in, "lex", source, source).targets(0), ElementsAre(0));
}

TEST(BinaryShortlist, RefusesAFileThatIsCutOffAnywhereOrChanged) {
  const std::string whole = binary_shortlist(1, {0, 1, 1, 4, 5}, {0, 2, 3, 4, 3, 1});
  for (std::size_t size = 8; size < whole.size(); ++size)
    EXPECT_NE(complaint(whole.substr(0, size)), "") << size;
  for (std::size_t place = 8; place < whole.size(); ++place) {
    std::string changed = whole;
    changed[place] = static_cast<char>(changed[place] ^ 1);
    EXPECT_NE(complaint(changed), "") << place;
  }
  EXPECT_THAT(complaint(whole + "x"), HasSubstr("the header has 5 offsets and 6 targets"));
  EXPECT_THAT(complaint(whole.substr(0, 20)), HasSubstr("has 20 bytes, a binary shortlist at least 48"));
  std::string damaged = whole;
  damaged.back() = 'x';
  EXPECT_THAT(complaint(damaged), HasSubstr("lex.bin: the checksum is "));
}

TEST(BinaryShortlist, RefusesCountsThatAreNotThoseOfTheFile) {
  for (const std::uint64_t count : {kHuge, ~std::uint64_t{0}, std::uint64_t{1} << 61, std::uint64_t{3}}) {
    EXPECT_THAT(complaint(binary_shortlist(0, {0, 1}, {1}, count, 1)),
                HasSubstr("the header has " + std::to_string(count) + " offsets and 1 targets"));
    EXPECT_THAT(complaint(binary_shortlist(0, {0, 1}, {1}, 2, count)),
                HasSubstr("the header has 2 offsets and " + std::to_string(count) + " targets"));
  }
  // 2^61 offsets of 8 bytes are none, where products overflow.
  EXPECT_NE(complaint(binary_shortlist(0, {}, {}, std::uint64_t{1} << 61, 0)), "");
}

TEST(BinaryShortlist, RefusesListsThatCannotBe) {
  EXPECT_THAT(complaint(binary_shortlist(0, {}, {})),
              HasSubstr("has 0 offsets; there must be 1 more than lists"));
  EXPECT_THAT(complaint(binary_shortlist(0, {0, 0, 0, 0, 0, 0}, {})),
              HasSubstr("has 6 offsets; there must be 1 more than lists, of which there are at most 4"));
  EXPECT_THAT(complaint(binary_shortlist(0, {0, 2, 1}, {1, 2})),
              HasSubstr("list 1 is from 2 to 1 of 2 targets"));
  EXPECT_THAT(complaint(binary_shortlist(0, {0, 3}, {1, 2})),
              HasSubstr("list 0 is from 0 to 3 of 2 targets"));
  EXPECT_THAT(complaint(binary_shortlist(0, {kHuge, ~std::uint64_t{0}}, {1, 2})), HasSubstr("of 2 targets"));
  EXPECT_THAT(complaint(binary_shortlist(0, {0, 1}, {5})),
              HasSubstr("list 0 has target 5; the target vocabulary has 5 words"));
  EXPECT_THAT(complaint(binary_shortlist(0, {0, 1}, {~std::uint32_t{0}})),
              HasSubstr("has target 4294967295"));
}

}  // namespace
}  // namespace topksoftmax
