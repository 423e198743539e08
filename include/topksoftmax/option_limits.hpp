// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// What a number that is an option may be. A literal, which stands beside the option in its struct's
/// visitor: at_least(1), above(0).and_below(1).
struct OptionLimits {
  /// How errors word a range that is closed at both ends.
  enum class Wording : std::uint8_t {
    at_least,  ///< "at least 2 and at most 1024"
    from,      ///< "from 0 to 1"
    between,   ///< "between 0 and 1"
  };
  /// Stands for a missing limit.
  static constexpr double none = std::numeric_limits<double>::infinity();

  /// The least value.
  double low = -none;
  /// The greatest value.
  double high = none;
  bool above_low = false;   ///< low itself is not allowed
  bool below_high = false;  ///< high itself is not allowed
  bool or_zero = false;     ///< 0 is allowed too: the backend chooses
  /// How errors word both limits.
  Wording wording = Wording::at_least;

  /// The same limits, and at most this.
  constexpr OptionLimits and_at_most(double most) const {
    OptionLimits limits = *this;
    limits.high = most;
    return limits;
  }
  /// The same limits, and below this.
  constexpr OptionLimits and_below(double bound) const {
    OptionLimits limits = and_at_most(bound);
    limits.below_high = true;
    return limits;
  }
  /// The same limits, and 0, by which the backend chooses.
  constexpr OptionLimits or_0() const {
    OptionLimits limits = *this;
    limits.or_zero = true;
    return limits;
  }

  /// Whether there are any.
  constexpr bool any() const { return low != -none || high != none; }

  /// NaN is allowed only where there are no limits.
  constexpr bool allow(double value) const {
    if (!any() || (or_zero && value == 0.0)) return true;
    return (above_low ? value > low : value >= low) && (below_high ? value < high : value <= high);
  }

  /// As errors have it: "at least 1", "above 0 and below 1"; empty where there are none.
  TOPKSOFTMAX_EXPORT std::string text() const;
};

/// From low on, itself included.
constexpr OptionLimits at_least(double low) {
  return {.low = low};
}
/// Up to high, itself included.
constexpr OptionLimits at_most(double high) {
  return {.high = high};
}
/// From low on, itself not included.
constexpr OptionLimits above(double low) {
  return {.low = low, .above_low = true};
}
/// From low to high, both included, worded "from 0 to 1".
constexpr OptionLimits from_to(double low, double high) {
  return {.low = low, .high = high, .wording = OptionLimits::Wording::from};
}
/// The same, worded "between 0 and 1".
constexpr OptionLimits between(double low, double high) {
  return {.low = low, .high = high, .wording = OptionLimits::Wording::between};
}

/// A value of an enum, and what texts call it.
template <class Enum>
struct OptionChoice {
  /// What texts call it.
  std::string_view name;
  /// The value.
  Enum value;
};

/// The values that an option may have which is an enum. A literal, as OptionLimits are.
template <class Enum, std::size_t N>
struct OptionChoices {
  std::string_view type;  ///< the enum's name in C++
  /// The values in the order of their declaration.
  std::array<OptionChoice<Enum>, N> all;

  /// The name of a value; empty for one that has none.
  constexpr std::string_view name_of(Enum value) const {
    for (const OptionChoice<Enum>& choice : all) {
      if (choice.value == value) return choice.name;
    }
    return {};
  }
  /// The value of a name; null for one that none has.
  constexpr const Enum* find(std::string_view name) const {
    for (const OptionChoice<Enum>& choice : all) {
      if (choice.name == name) return &choice.value;
    }
    return nullptr;
  }
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A visitor that does nothing.
struct IgnoreOptions {
  template <class... Any>
  void operator()(const Any&... /*option*/) const {}
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

/// A struct of options: its static member `visit(options, visitor)` calls visitor(name, option, help, limits)
/// for each option in the order of their declaration: `options` and `option` are const or not, alike; limits
/// are OptionLimits, or the OptionChoices of an enum, or absent. An option may be a whole number, a double, a
/// bool, an enum, a std::string, a std::optional of one of these (empty: the backend chooses), or a struct of
/// options itself, visited as visitor(name, option), whose options then count as the outer one's.
template <class Options>
concept VisitedOptions = requires(Options& options) {
  Options::visit(options, detail::IgnoreOptions());
};

}  // namespace TOPKSOFTMAX_NAMESPACE

#if defined(TOPKSOFTMAX_HEADER_ONLY)
#include "topksoftmax/option_limits-inl.hpp"
#endif
