// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cctype>
#include <sstream>
#include <string>
#include <vector>

namespace topksoftmax::examples {

/// The words of a text that blanks separate.
inline std::vector<std::string> words_of(const std::string& text) {
  std::istringstream input(text);
  std::vector<std::string> words;
  for (std::string word; input >> word;) words.push_back(word);
  return words;
}

/// Text as people write it: no blank before punctuation, a capital after a full stop, lines of 96 characters.
class Typesetter {
 public:
  void add(const std::string& word) {
    const bool closes = word.size() == 1 && std::string(".,;:!?)").find(word) != std::string::npos;
    const bool clitic = word.size() > 1 && word[0] == '\'';
    std::string shown = word;
    if (capital_ && !shown.empty())
      shown[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(shown[0])));
    if (shown == "i") shown = "I";
    if (!closes && !clitic && !line_.empty()) {
      if (line_.size() + shown.size() + 1 > 96) {
        text_ += "  " + line_ + "\n";
        line_.clear();
      } else {
        line_ += ' ';
      }
    }
    line_ += shown;
    capital_ = word == "." || word == "!" || word == "?";
  }
  std::string text() const { return text_ + "  " + line_ + "\n"; }

 private:
  std::string text_;
  std::string line_;
  bool capital_ = true;
};

}  // namespace topksoftmax::examples
