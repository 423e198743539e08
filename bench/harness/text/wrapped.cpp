// SPDX-License-Identifier: Apache-2.0
#include "harness/text/wrapped.hpp"

#include <algorithm>

#include "harness/text/characters.hpp"

namespace topksoftmax::bench {

std::string wrapped(std::string_view text, std::size_t columns) {
  std::string lines;
  std::size_t used = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const std::size_t length = characters(word);
    if (!lines.empty()) {
      const bool fits = used + 1 + length <= columns;
      lines += fits ? ' ' : '\n';
      used = fits ? used + 1 : 0;
    }
    lines += word;
    used += length;
    begin = end + 1;
  }
  return lines;
}

}  // namespace topksoftmax::bench
