// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/numeric/number_text.hpp"
#include "topksoftmax/option_limits.hpp"
#include "topksoftmax/registry/joined.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// How an option's text is to be read.
enum class OptionType : std::uint8_t {
  whole,    ///< a whole number from 0 on
  integer,  ///< a whole number
  real,
  boolean,  ///< true or false
  choice,   ///< one of a few names
  text,
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

template <class T>
struct ValueOf {
  using Type = T;
  static constexpr bool optional = false;
};
template <class T>
struct ValueOf<std::optional<T>> {
  using Type = T;
  static constexpr bool optional = true;
};

template <class T>
inline constexpr OptionType option_type = [] {
  if constexpr (std::is_same_v<T, std::string>) return OptionType::text;
  if constexpr (std::is_same_v<T, bool>) return OptionType::boolean;
  if constexpr (std::is_enum_v<T>) return OptionType::choice;
  if constexpr (std::is_floating_point_v<T>) return OptionType::real;
  return std::is_unsigned_v<T> ? OptionType::whole : OptionType::integer;
}();

/// Reads a value that is not an enum. Throws Error, whose message goes on after the option's name.
template <class T>
T parse_option(std::string_view text) {
  if constexpr (std::is_same_v<T, std::string>) {
    return std::string(text);
  } else if constexpr (std::is_same_v<T, bool>) {
    if (text == "true" || text == "1") return true;
    if (text == "false" || text == "0") return false;
    throw Error("must be true or false");
  } else {
    if (const std::optional<T> value = number_of<T>(text)) return *value;
    throw Error(std::is_floating_point_v<T> ? "must be a number"
                : std::is_unsigned_v<T>     ? "must be a whole number from 0 on"
                                            : "must be a whole number");
  }
}

template <class Enum, std::size_t N>
std::string names_of(const OptionChoices<Enum, N>& choices) {
  return detail::joined(choices.all, &OptionChoice<Enum>::name);
}

template <class Enum, std::size_t N>
Enum parse_option(std::string_view text, const OptionChoices<Enum, N>& choices) {
  const Enum* const found = choices.find(text);
  if (found == nullptr) throw Error("must be one of " + names_of(choices));
  return *found;
}

/// The shortest text that reads back as the value.
template <class T>
std::string option_text(const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    return value;
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else {
    return number_text(value);
  }
}

template <class Enum, std::size_t N>
std::string option_text(Enum value, const OptionChoices<Enum, N>& choices) {
  return std::string(choices.name_of(value));
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
