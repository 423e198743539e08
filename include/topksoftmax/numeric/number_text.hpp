// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <charconv>
#include <cmath>
#include <string>

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

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
