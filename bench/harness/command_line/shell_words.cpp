// SPDX-License-Identifier: Apache-2.0
#include "harness/command_line/shell_words.hpp"

#include <string_view>

namespace topksoftmax::bench {
namespace {

std::string quoted(std::string_view word) {
  const bool plain =
      !word.empty() && word.find_first_of(" \t\n'\"\\$`*?[](){}<>|&;#~!") == std::string_view::npos;
  if (plain) return std::string(word);
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

std::string shell_words(std::span<const std::string> words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + quoted(word);
  return text;
}

}  // namespace topksoftmax::bench
