// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "topksoftmax/config.hpp"
#include "topksoftmax/index/quoted.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The code point that UTF-8 text begins with, which is taken off; U+FFFD for a byte that begins none.
inline std::uint32_t take_code_point(std::string_view& text) {
  const auto byte = [&text](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i]));
  };
  const std::uint32_t first = byte(0);
  const std::size_t length = first < 0x80         ? 1
                             : first >> 5 == 0x6  ? 2
                             : first >> 4 == 0xe  ? 3
                             : first >> 3 == 0x1e ? 4
                                                  : 0;
  constexpr std::array<std::uint32_t, 5> least = {0, 0, 0x80, 0x800, 0x10000};
  std::uint32_t point = length == 1 ? first : first & (0x7fU >> length);
  bool valid = length != 0 && length <= text.size();
  for (std::size_t i = 1; valid && i < length; ++i) {
    valid = byte(i) >> 6 == 2;
    point = point << 6 | (byte(i) & 0x3f);
  }
  valid = valid && point >= least[length] && point <= 0x10ffff && (point < 0xd800 || point > 0xdfff);
  text.remove_prefix(valid ? length : 1);
  return valid ? point : 0xfffd;
}

TOPKSOFTMAX_INLINE std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  const bool whole = text.size() <= kLongest;
  text = text.substr(0, kLongest);
  std::string quoted = "\"";
  const auto escape = [&quoted](std::uint32_t unit) {
    constexpr std::string_view digits = "0123456789abcdef";
    quoted += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) quoted += digits[unit >> shift & 15];
  };
  while (!text.empty()) {
    const std::uint32_t point = take_code_point(text);
    constexpr std::string_view special = "\"\\\b\f\n\r\t";
    constexpr std::string_view letters = "\"\\bfnrt";
    const std::size_t found = point < 0x80 ? special.find(static_cast<char>(point)) : std::string_view::npos;
    if (found != std::string_view::npos) {
      (quoted += '\\') += letters[found];
    } else if (point >= 0x20 && point < 0x7f) {
      quoted += static_cast<char>(point);
    } else if (point < 0x10000) {
      escape(point);
    } else {
      escape(0xd800 + ((point - 0x10000) >> 10));
      escape(0xdc00 + ((point - 0x10000) & 0x3ff));
    }
  }
  return quoted + (whole ? "\"" : "...\"");
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
