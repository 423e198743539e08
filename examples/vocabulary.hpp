// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "topksoftmax/error.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax::examples {

/// The words of a model's tokens, from a tensor of UTF-8 with a word a line.
class Vocabulary {
 public:
  /// Throws Error unless there are `size` words.
  Vocabulary(const SafetensorsFile& file, const std::string& tensor, std::size_t size) {
    std::string word;
    const auto end_word = [&] {
      tokens_.emplace(word, static_cast<TokenId>(words_.size()));
      words_.push_back(std::move(word));
      word.clear();
    };
    for (const std::byte c : file.tensor(tensor).bytes) {
      if (static_cast<char>(c) == '\n') {
        end_word();
      } else {
        word.push_back(static_cast<char>(c));
      }
    }
    if (!word.empty()) end_word();
    if (words_.size() != size) {
      throw file.error(
          tensor, "has " + std::to_string(words_.size()) + " words, the model has " + std::to_string(size));
    }
  }

  std::size_t size() const { return words_.size(); }
  const std::string& word(TokenId id) const { return words_[static_cast<std::size_t>(id)]; }

  /// The token of a word; Error if it is not in the vocabulary.
  TokenId token(const std::string& word) const {
    const auto found = tokens_.find(word);
    if (found == tokens_.end()) throw Error("the word \"" + word + "\" is not in the vocabulary");
    return found->second;
  }

  /// The same with a token for all words that are not.
  TokenId token(const std::string& word, TokenId unknown) const {
    const auto found = tokens_.find(word);
    return found == tokens_.end() ? unknown : found->second;
  }

 private:
  std::vector<std::string> words_;
  std::unordered_map<std::string, TokenId> tokens_;
};

}  // namespace topksoftmax::examples
