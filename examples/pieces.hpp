// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "topksoftmax/error.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/types.hpp"
#include "vocabulary.hpp"

namespace topksoftmax::examples {

/// Text as the pieces of a vocabulary that SentencePiece learned by byte pair encoding. A line is a piece:
/// "▁" stands for a blank, a line of "\n" or "\t" alone for that character, "<0xHH>" for a byte; tokens 0 to
/// 2 are <unk>, <s> and </s>.
class Pieces {
 public:
  static constexpr TokenId kStart = 1;
  static constexpr TokenId kEnd = 2;

  /// Throws Error unless there are `size` pieces, <s> and </s> among them.
  Pieces(const SafetensorsFile& file, const std::string& tensor, std::size_t size) : bytes_(256, kNone) {
    const Vocabulary lines(file, tensor, size);
    if (size <= static_cast<std::size_t>(kEnd)) {
      throw file.error(tensor, "has " + std::to_string(size) + " pieces; it must have </s>, token " +
                                   std::to_string(kEnd));
    }
    texts_.resize(size);
    for (std::size_t i = kEnd + 1; i < size; ++i) {
      const auto id = static_cast<TokenId>(i);
      const std::string& line = lines.word(id);
      if (const std::optional<unsigned char> byte = byte_of(line)) {
        texts_[i] = static_cast<char>(*byte);
        bytes_[*byte] = id;
      } else {
        texts_[i] = text_of(line);
        tokens_.emplace(texts_[i], id);
      }
    }
  }

  /// The tokens of a text, <s> first. A text has a blank before it, as those that the model learned from.
  std::vector<TokenId> encode(std::string_view text) const {
    std::vector<TokenId> tokens = {kStart};
    if (text.empty()) return tokens;
    const std::string whole = " " + std::string(text);
    // No piece has a blank but at its beginning, and none goes over the end of a line.
    for (std::size_t first = 0; first < whole.size();) {
      const std::size_t end = std::min(whole.find_first_of(" \n\t", first + 1), whole.size());
      encode_word(std::string_view(whole).substr(first, end - first), tokens);
      first = end;
    }
    return tokens;
  }

  /// The text of some tokens, the bytes as they are. The blank that encode() puts after <s> is left out.
  std::string decode(std::span<const TokenId> tokens) const {
    std::string text;
    for (const TokenId id : tokens) text += texts_[static_cast<std::size_t>(id)];
    const bool begins = !tokens.empty() && tokens.front() == kStart;
    return begins && text.starts_with(' ') ? text.substr(1) : text;
  }

 private:
  static constexpr TokenId kNone = std::numeric_limits<TokenId>::max();

  static std::optional<unsigned char> byte_of(std::string_view line) {
    unsigned char byte = 0;
    if (line.size() != 6 || !line.starts_with("<0x") || !line.ends_with('>')) return std::nullopt;
    const char* const end = line.data() + 5;
    if (std::from_chars(line.data() + 3, end, byte, 16).ptr != end) return std::nullopt;
    return byte;
  }

  static std::string text_of(const std::string& line) {
    if (line == "\\n") return "\n";
    if (line == "\\t") return "\t";
    constexpr std::string_view blank = "▁";
    std::string text;
    for (std::size_t i = 0; i < line.size();) {
      const bool is_blank = std::string_view(line).substr(i).starts_with(blank);
      text += is_blank ? ' ' : line[i];
      i += is_blank ? blank.size() : 1;
    }
    return text;
  }

  /// The piece of a text, kNone where there is none.
  TokenId token(const std::string& text) const {
    const auto found = tokens_.find(text);
    return found == tokens_.end() ? kNone : found->second;
  }

  /// Merges the two neighbours whose piece was learned first until no two of them are a piece. The file has
  /// no table of merges and needs none: pieces are numbered in the order in which they were learned.
  void encode_word(std::string_view word, std::vector<TokenId>& tokens) const {
    std::vector<std::string> parts;
    for (const char c : word) {
      const bool continues = (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;  // a character of UTF-8
      if (parts.empty() || !continues) parts.emplace_back();
      parts.back() += c;
    }
    for (;;) {
      TokenId best = kNone;
      std::size_t at = 0;
      for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
        const TokenId merged = token(parts[i] + parts[i + 1]);
        if (merged < best) {
          best = merged;
          at = i;
        }
      }
      if (best == kNone) break;
      parts[at] += parts[at + 1];
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
    for (const std::string& part : parts) {
      const TokenId id = token(part);
      if (id != kNone) {
        tokens.push_back(id);
      } else {
        for (const char c : part) tokens.push_back(byte_token(static_cast<unsigned char>(c)));
      }
    }
  }

  TokenId byte_token(unsigned char byte) const {
    if (bytes_[byte] == kNone) {
      throw Error("the vocabulary has no piece for byte " + std::to_string(byte) + " of the text");
    }
    return bytes_[byte];
  }

  std::vector<std::string> texts_;                   ///< of each token
  std::unordered_map<std::string, TokenId> tokens_;  ///< of each text; a byte's are not among them
  std::vector<TokenId> bytes_;
};

}  // namespace topksoftmax::examples
