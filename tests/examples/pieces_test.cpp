// SPDX-License-Identifier: Apache-2.0
#include "pieces.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "support/errors.hpp"
#include "support/temporary_folder.hpp"
#include "topksoftmax/io/safetensors.hpp"

namespace topksoftmax {
namespace {

using examples::Pieces;

/// Control tokens, lines and tabs, every byte, and what was learned: "ab" before "bc", "é" alone.
std::vector<std::string> lines() {
  std::vector<std::string> lines = {"<unk>", "<s>", "</s>", "\\n", "\\t"};
  for (int byte = 0; byte < 256; ++byte) {
    std::array<char, 8> text{};
    std::snprintf(text.data(), text.size(), "<0x%02X>", static_cast<unsigned>(byte));
    lines.emplace_back(text.data());
  }
  for (const char* piece : {"ab", "bc", "▁ab", "▁", "a", "b", "c", "<", "\\", "n", "s", ">", "é"}) {
    lines.emplace_back(piece);
  }
  return lines;
}

Pieces pieces_of(const std::vector<std::string>& lines, std::size_t size) {
  const testing::TemporaryFolder folder;
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  const auto path = folder.path() / "pieces.safetensors";
  write_safetensors(path,
                    std::array{TensorView{.name = "vocab.utf8",
                                          .shape = {text.size()},
                                          .bytes = std::as_bytes(std::span(text.data(), text.size()))}});
  return {SafetensorsFile::open(path), "vocab.utf8", size};
}

Pieces pieces() {
  return pieces_of(lines(), lines().size());
}

TokenId line_of(const std::string& piece) {
  const std::vector<std::string> all = lines();
  return static_cast<TokenId>(std::find(all.begin(), all.end(), piece) - all.begin());
}

std::vector<TokenId> tokens(const std::vector<std::string>& wanted) {
  std::vector<TokenId> tokens = {Pieces::kStart};
  for (const std::string& piece : wanted) tokens.push_back(line_of(piece));
  return tokens;
}

TEST(Pieces, MergesWhatWasLearnedFirst) {
  EXPECT_EQ(pieces().encode("abc"), tokens({"▁ab", "c"}));
  EXPECT_EQ(pieces().encode("cabc bc"), tokens({"▁", "c", "ab", "c", "▁", "bc"}));
  EXPECT_EQ(pieces().encode(""), tokens({}));
}

TEST(Pieces, LinesAndTabsAreNotWhatSpellsThem) {
  EXPECT_EQ(pieces().encode("a\n\tb"), tokens({"▁", "a", "\\n", "\\t", "b"}));
  // "\n" as a program's text has it.
  const std::vector<TokenId> spelt = {Pieces::kStart, line_of("▁"), line_of("a"), line_of("\\"),
                                      line_of("n")};
  EXPECT_EQ(pieces().encode("a\\n"), spelt);
}

TEST(Pieces, WhatHasNoPieceIsBytes) {
  EXPECT_EQ(pieces().encode("aö"), tokens({"▁", "a", "<0xC3>", "<0xB6>"}));
  EXPECT_EQ(pieces().encode("aé"), tokens({"▁", "a", "é"}));
  EXPECT_EQ(pieces().encode("▁"), tokens({"▁", "<0xE2>", "<0x96>", "<0x81>"}));
}

TEST(Pieces, TextNamesNoControlToken) {
  EXPECT_EQ(pieces().encode("<s>"), tokens({"▁", "<", "s", ">"}));
  EXPECT_EQ(pieces().encode("<0x41>").back(), line_of(">"));
}

TEST(Pieces, DecodeGivesBackEveryText) {
  for (const std::string text : {"", "abc", " abc ", "  a", "a\n\n\tb \n", "\\n\\t", "▁ <s> <0x41> </s>",
                                 "grün – 漢字 🙂", "\xff\xc3(\x80"}) {
    EXPECT_EQ(pieces().decode(pieces().encode(text)), text);
  }
  const std::string zero("a\0b", 3);
  EXPECT_EQ(pieces().decode(pieces().encode(zero)), zero);
}

TEST(Pieces, DecodeOfAPartKeepsItsBlank) {
  EXPECT_EQ(pieces().decode(std::vector{line_of("▁ab"), line_of("c")}), " abc");
}

TEST(Pieces, WhatTheyCannotWriteIsRefused) {
  const std::vector<std::string> few = {"<unk>", "<s>", "</s>", "▁", "a"};
  const Pieces without_bytes = pieces_of(few, few.size());
  EXPECT_EQ(without_bytes.decode(without_bytes.encode("a")), "a");
  EXPECT_EQ(testing::error_of([&] { without_bytes.encode("b"); }),
            "the vocabulary has no piece for byte 98 of the text");
  EXPECT_NE(
      testing::error_of([&] { pieces_of(few, 6); }).find("\"vocab.utf8\": has 5 words, the model has 6"),
      std::string::npos);
  EXPECT_NE(testing::error_of([] {
              pieces_of({"<unk>", "<s>"}, 2);
            }).find("\"vocab.utf8\": has 2 pieces; it must have </s>, token 2"),
            std::string::npos);
}

}  // namespace
}  // namespace topksoftmax
