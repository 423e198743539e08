// SPDX-License-Identifier: Apache-2.0
#include "harness/backends/choice.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "harness/command_line/nearest_name.hpp"
#include "harness/command_line/usage_error.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/index/quoted.hpp"
#include "topksoftmax/registry/option_value.hpp"

namespace topksoftmax::bench {
namespace {

/// May stand around the names in a list.
constexpr std::string_view kBlanks = " \t";

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t comma = std::min(list.find(',', begin), list.size());
    const std::size_t first = std::min(list.find_first_not_of(kBlanks, begin), comma);
    if (comma > first) {
      parts.emplace_back(list.substr(first, list.find_last_not_of(kBlanks, comma - 1) + 1 - first));
    }
    begin = comma + 1;
  }
  return parts;
}

/// An error for a name that no backend has, of which the registry says so much: one that wraps others without
/// one of these, one that is much like another, or any other.
UsageError no_backend(const Registry& registry, const std::string& name, const Error& unknown) {
  std::vector<std::string> names;
  for (const BackendDescription& one : registry.descriptions()) names.push_back(one.name);
  for (const BackendDescription& wrapper : registry.wrappers()) {
    const std::string prefix = wrapper.name + ":";
    if (name != wrapper.name && !name.starts_with(prefix)) continue;
    const std::string inner = name == wrapper.name ? "" : name.substr(prefix.size());
    return UsageError("there is no backend " + detail::in_quotes(name) + "; " + prefix +
                      "NAME takes any other that list shows" + did_you_mean(inner, names));
  }
  const std::string meant = did_you_mean(name, names);
  if (meant.empty()) return UsageError(unknown.what());
  return UsageError("there is no backend " + detail::in_quotes(name) + meant);
}

/// The parts of "backend.parameter=value".
struct Setting {
  std::string backend;
  std::string parameter;
  std::string value;
};

Setting parse_setting(const std::string& setting) {
  const std::size_t equals = setting.find('=');
  const std::size_t dot = setting.rfind('.', equals);
  if (equals == std::string::npos || dot == std::string::npos) {
    throw UsageError("--set takes backend.parameter=value, not \"" + setting + "\"");
  }
  return {.backend = setting.substr(0, dot),
          .parameter = setting.substr(dot + 1, equals - dot - 1),
          .value = setting.substr(equals + 1)};
}

/// What an Error says is wrong, the user has written.
template <class Ask>
auto as_usage(const Ask& ask) {
  try {
    return ask();
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

nlohmann::json as_json(OptionType type, const std::string& text) {
  switch (type) {
    case OptionType::whole:
      return detail::parse_option<std::uint64_t>(text);
    case OptionType::integer:
      return detail::parse_option<std::int64_t>(text);
    case OptionType::real:
      return detail::parse_option<double>(text);
    case OptionType::boolean:
      return detail::parse_option<bool>(text);
    default:
      return text;
  }
}

nlohmann::json as_json(const OptionDescription& option, const std::string& text) {
  return option.optional && text.empty() ? nlohmann::json(nullptr) : as_json(option.type, text);
}

/// Throws UsageError for a number outside of its option's limits.
void check_limits(const BackendDescription& backend, const Settings& settings) {
  for (const OptionDescription& option : backend.options()) {
    const auto found = settings.find(option.name);
    if (found == settings.end() || !option.limits.any()) continue;
    if (option.limits.allow(as_json(option.type, found->second).get<double>())) continue;
    throw UsageError(backend.name + "." + option.name + " must be " + option.limits.text() + ", not \"" +
                     found->second + "\"");
  }
}

/// What an option's value may be; empty where every number will do.
std::string range_of(const OptionDescription& option) {
  OptionLimits limits = option.limits;
  if (!limits.any()) return "";
  const bool closed = limits.low != -OptionLimits::none && limits.high != OptionLimits::none &&
                      !limits.above_low && !limits.below_high;
  if (closed) limits.wording = OptionLimits::Wording::from;
  return limits.text();
}

std::string as_text(const nlohmann::json& value) {
  if (value.is_null()) return "(chosen)";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// The settings of each backend that --set names.
std::map<std::string, Settings> parse_settings(const Registry& registry,
                                               std::span<const std::string> settings) {
  std::map<std::string, Settings> all;
  for (const std::string& setting : settings) {
    const auto [backend, parameter, value] = parse_setting(setting);
    if (!all[backend].emplace(parameter, value).second) {
      throw UsageError("--set gives " + backend + "." + parameter + " twice");
    }
  }
  for (const auto& one : all) {
    const auto backend = find_backend(registry, one.first);
    as_usage([&] { return backend->values(one.second); });
    check_limits(*backend, one.second);
  }
  return all;
}

}  // namespace

std::shared_ptr<const BackendDescription> find_backend(const Registry& registry, std::string_view name) {
  try {
    return std::make_shared<const BackendDescription>(registry.find(name));
  } catch (const Error& unknown) {
    throw no_backend(registry, std::string(name), unknown);
  }
}

std::vector<Choice> choose_backends(const Registry& registry, std::string_view names,
                                    std::span<const std::string> settings) {
  const std::map<std::string, Settings> all = parse_settings(registry, settings);
  std::vector<Choice> chosen;
  const auto choose = [&](const std::string& name) {
    const bool known = std::any_of(chosen.begin(), chosen.end(),
                                   [&](const Choice& choice) { return choice.backend->name == name; });
    if (known) return;
    const auto found = all.find(name);
    chosen.push_back({.backend = find_backend(registry, name),
                      .settings = found == all.end() ? Settings() : found->second});
  };
  for (const std::string& name : split(names)) {
    if (name == "all") {
      for (const BackendDescription& backend : registry.descriptions()) choose(backend.name);
    } else {
      choose(name);
    }
  }
  if (chosen.empty()) throw UsageError("--backends names no backend");
  return chosen;
}

void check_all_chosen(std::span<const Choice> choices, std::span<const std::string> settings) {
  for (const std::string& setting : settings) {
    const std::string backend = parse_setting(setting).backend;
    const bool chosen = std::any_of(choices.begin(), choices.end(),
                                    [&](const Choice& one) { return one.backend->name == backend; });
    if (!chosen)
      throw UsageError("--set names the backend " + backend + ", which is not among those measured");
  }
}

void check_effort(const Registry& registry, std::string_view name) {
  constexpr std::string_view kMapped = "mapped:";
  if (name.starts_with(kMapped)) name.remove_prefix(kMapped.size());
  for (const BackendDescription& one : registry.descriptions()) {
    if (one.name != name || !one.axes.empty()) continue;
    if (one.traits.exact || one.traits.scans_all)
      throw UsageError("--effort: " + one.name + " has no effort");
  }
}

Choice choose_backend(const Registry& registry, std::string_view name,
                      std::span<const std::string> settings) {
  Choice choice = {.backend = find_backend(registry, name), .settings = {}};
  for (auto& [named, values] : parse_settings(registry, settings)) {
    if (named != choice.backend->name) {
      throw UsageError("--set names the backend " + named + ", but " + choice.backend->name + " is built");
    }
    choice.settings = values;
  }
  return choice;
}

Choice suited_to(std::size_t k, Choice choice) {
  choice.settings = choice.backend->suited_to(k, std::move(choice.settings));
  return choice;
}

nlohmann::json values_of(const BackendDescription& backend, const Settings& settings) {
  nlohmann::json values = nlohmann::json::object();
  for (const auto& [name, text] : backend.values(settings)) {
    const auto option =
        std::find_if(backend.options().begin(), backend.options().end(),
                     [&name = name](const OptionDescription& one) { return one.name == name; });
    values[name] = option == backend.options().end() ? nlohmann::json(text) : as_json(*option, text);
  }
  return values;
}

std::string describe_backends(const Registry& registry) {
  std::string text;
  for (const BackendDescription& backend : registry.descriptions()) {
    text += backend.name + "\n    " + backend.summary + "\n";
    for (const OptionDescription& option : backend.options()) {
      const std::string range = range_of(option);
      text += "    --set " + backend.name + "." + option.name + "=" +
              as_text(as_json(option, option.default_value)) + "    " + option.help +
              (range.empty() ? "" : "; " + range) + "\n";
    }
  }
  for (const BackendDescription& wrapper : registry.wrappers()) {
    text += wrapper.name + ":NAME\n    " + wrapper.summary + "; NAME is any of these\n";
  }
  return text;
}

nlohmann::ordered_json backends_as_json(const Registry& registry) {
  nlohmann::ordered_json backends = nlohmann::ordered_json::array();
  for (const BackendDescription& backend : registry.descriptions()) {
    nlohmann::ordered_json options = nlohmann::ordered_json::array();
    for (const OptionDescription& option : backend.options()) {
      options.push_back({{"name", option.name},
                         {"default", as_json(option, option.default_value)},
                         {"help", option.help},
                         {"range", range_of(option)}});
    }
    backends.push_back({{"name", backend.name},
                        {"summary", backend.summary},
                        {"has_index", backend.traits.has_index},
                        {"options", std::move(options)}});
  }
  return backends;
}

}  // namespace topksoftmax::bench
