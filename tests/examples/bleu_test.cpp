// SPDX-License-Identifier: Apache-2.0
#include "bleu.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "text.hpp"

namespace topksoftmax {
namespace {

using examples::Bleu;
using examples::words_of;

TEST(Bleu, EqualTextsHaveOneHundred) {
  Bleu bleu;
  bleu.add(words_of("a man in a hat is here"), words_of("a man in a hat is here"));
  EXPECT_NEAR(bleu.value(), 100.0, 1e-9);
}

TEST(Bleu, ClipsCountsAndPunishesShortness) {
  // 1-grams 5/5, 2-grams 4/4, 3-grams 3/3, 4-grams 2/2; 5 words for 6: exp(1 − 6/5).
  Bleu shorter;
  shorter.add(words_of("a man in a hat"), words_of("a man in a hat ."));
  EXPECT_NEAR(shorter.value(), 100.0 * std::exp(1.0 - 6.0 / 5.0), 1e-9);
  // "the" counts once although it was written four times: 1-grams 4/7.
  Bleu repeated;
  repeated.add(words_of("the the the the cat sat down"), words_of("the cat sat down there now ."));
  EXPECT_NEAR(repeated.value(), 100.0 * std::pow(4.0 / 7 * 3 / 6 * 2 / 5 * 1 / 4, 0.25), 1e-9);
}

TEST(Bleu, IsZeroWithoutAMatchOfEveryLength) {
  Bleu bleu;
  bleu.add(words_of("a b c"), words_of("a b c"));
  EXPECT_EQ(bleu.value(), 0.0);
}

}  // namespace
}  // namespace topksoftmax
