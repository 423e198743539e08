// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The shortest text that reads back as the same number.
template <class T>
std::string number_text(T value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

/// The same for people to read: what is not a number is "NaN".
template <class T>
std::string value_text(T value) {
  return std::isnan(value) ? "NaN" : number_text(value);
}

/// The number that all of the text is; nothing where it is none, or one that does not fit.
template <class T>
std::optional<T> number_of(std::string_view text) {
  T number{};
  const char* const end = text.data() + text.size();
  const auto [behind, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || behind != end) return std::nullopt;
  return number;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
