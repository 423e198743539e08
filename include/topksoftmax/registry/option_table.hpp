// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/option_limits.hpp"
#include "topksoftmax/registry/joined.hpp"
#include "topksoftmax/registry/option_value.hpp"
#include "topksoftmax/registry/settings.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// An option of a backend, as text.
struct OptionDescription {
  /// As the struct has it: "ef_search".
  std::string name;
  /// A phrase for command lines and tables.
  std::string help;
  /// How its text is read.
  OptionType type = OptionType::whole;
  bool optional = false;                  ///< it may be left to the backend to choose
  std::string default_value = {};         ///< empty, if it is optional: the backend chooses
  OptionLimits limits = {};               ///< of numbers
  std::vector<std::string> choices = {};  ///< of a choice
};

/// Throws Error unless these are settings of options that a backend of this name has.
inline void check_known(std::string_view backend, const std::vector<OptionDescription>& options,
                        const Settings& settings) {
  for (const auto& setting : settings) {
    const std::string& name = setting.first;
    const auto has_name = [&name](const OptionDescription& option) { return option.name == name; };
    if (std::any_of(options.begin(), options.end(), has_name)) continue;
    const std::string known = detail::joined(options, &OptionDescription::name);
    throw Error("backend " + std::string(backend) + " has no parameter \"" + name + "\"; " +
                (known.empty() ? "it has none" : "it has " + known));
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Describes each option that it is called with.
class OptionLister {
 public:
  template <class T, class... Limits>
  void operator()(std::string_view name, const T& value, std::string_view help, const Limits&... limits) {
    using Value = typename ValueOf<T>::Type;
    OptionDescription& option = options.emplace_back();
    option.name = name;
    option.help = help;
    option.type = option_type<Value>;
    option.optional = ValueOf<T>::optional;
    (add(option, limits), ...);
    if constexpr (ValueOf<T>::optional) {
      if (value) option.default_value = text_of(*value, limits...);
    } else {
      option.default_value = text_of(value, limits...);
    }
  }
  template <VisitedOptions Options>
  void operator()(std::string_view /*name*/, const Options& inner) {
    Options::visit(inner, *this);
  }

  std::vector<OptionDescription> options;

 private:
  static void add(OptionDescription& option, const OptionLimits& limits) { option.limits = limits; }
  template <class Enum, std::size_t N>
  static void add(OptionDescription& option, const OptionChoices<Enum, N>& choices) {
    for (const OptionChoice<Enum>& choice : choices.all) option.choices.emplace_back(choice.name);
    option.help += ": " + names_of(choices);
  }

  template <class T, class... Limits>
  static std::string text_of(const T& value, const Limits&... limits) {
    if constexpr (std::is_enum_v<T>) {
      return option_text(value, limits...);
    } else {
      return option_text(value);
    }
  }
};

/// Sets each option that it is called with and that there is a setting of.
class OptionSetter {
 public:
  OptionSetter(std::string_view backend, const Settings& settings) : backend_(backend), settings_(settings) {}

  template <class T, class... Limits>
  void operator()(std::string_view name, T& value, std::string_view /*help*/, const Limits&... limits) const {
    using Value = typename ValueOf<T>::Type;
    const auto found = settings_.find(name);
    if (found == settings_.end()) return;
    try {
      if constexpr (std::is_enum_v<Value>) {
        value = parse_option(found->second, limits...);
      } else {
        value = parse_option<Value>(found->second);
      }
    } catch (const Error& error) {
      throw Error(std::string(backend_) + "." + std::string(name) + " " + error.what() + ", not \"" +
                  found->second + "\"");
    }
  }
  template <VisitedOptions Options>
  void operator()(std::string_view /*name*/, Options& inner) const {
    Options::visit(inner, *this);
  }

 private:
  std::string_view backend_;
  const Settings& settings_;
};

/// Writes the settings of each option that it is called with as C++ does: ".K = 16, .hash = {.bands = 60}".
class OptionCode {
 public:
  explicit OptionCode(const Settings& settings) : settings_(settings) {}

  template <class T, class... Limits>
  void operator()(std::string_view name, const T& /*value*/, std::string_view /*help*/,
                  const Limits&... limits) {
    using Value = typename ValueOf<T>::Type;
    const auto found = settings_.find(name);
    if (found == settings_.end()) return;
    if constexpr (std::is_enum_v<Value>) {
      add(name, (std::string(limits.type), ...) + "::" + found->second);
    } else if constexpr (std::is_same_v<Value, std::string>) {
      add(name, "\"" + found->second + "\"");
    } else {
      add(name, found->second);
    }
  }
  template <VisitedOptions Options>
  void operator()(std::string_view name, const Options& inner) {
    OptionCode code(settings_);
    Options::visit(inner, code);
    if (!code.text.empty()) add(name, "{" + code.text + "}");
  }

  void add(std::string_view name, const std::string& value) {
    text += (text.empty() ? "." : ", .") + std::string(name) + " = " + value;
  }

  std::string text;

 private:
  const Settings& settings_;
};

/// The options of a struct, with the defaults that these have.
template <VisitedOptions Options>
std::vector<OptionDescription> option_table(const Options& defaults = {}) {
  OptionLister lister;
  Options::visit(defaults, lister);
  return std::move(lister.options);
}

/// Options with settings. Throws Error for unknown names and for values that cannot be read.
template <VisitedOptions Options>
Options options_of(std::string_view backend, const Settings& settings) {
  Options options;
  check_known(backend, option_table(options), settings);
  Options::visit(options, OptionSetter(backend, settings));
  return options;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
