// SPDX-License-Identifier: Apache-2.0
#include "harness/registry.hpp"

#include <algorithm>

#include "harness/backends.hpp"
#include "harness/usage_error.hpp"

namespace topksoftmax::bench {
namespace {

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t comma = std::min(list.find(',', begin), list.size());
    if (comma > begin) parts.emplace_back(list.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return parts;
}

std::string as_text(const nlohmann::json& value) {
  if (value.is_null()) return "(chosen)";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// The settings of each backend that --set names.
std::map<std::string, Settings> parse_settings(std::span<const std::string> settings) {
  std::map<std::string, Settings> all;
  for (const std::string& setting : settings) {
    const std::size_t equals = setting.find('=');
    const std::size_t dot = setting.rfind('.', equals);
    if (equals == std::string::npos || dot == std::string::npos) {
      throw UsageError("--set takes backend.parameter=value, not \"" + setting + "\"");
    }
    all[setting.substr(0, dot)][setting.substr(dot + 1, equals - dot - 1)] = setting.substr(equals + 1);
  }
  for (const auto& [name, values] : all) find_backend(name).values(values);  // throws where one is wrong
  return all;
}

}  // namespace

std::span<const Backend> backends() {
  static const std::vector<Backend> all = make_backends();
  return all;
}

const Backend& find_backend(std::string_view name) {
  std::string known;
  for (const Backend& backend : backends()) {
    if (backend.name == name) return backend;
    known += (known.empty() ? "" : ", ") + backend.name;
  }
  throw UsageError("there is no backend \"" + std::string(name) + "\"; there are " + known);
}

std::vector<Choice> choose_backends(std::string_view names, std::span<const std::string> settings) {
  const std::map<std::string, Settings> all = parse_settings(settings);
  std::vector<Choice> chosen;
  const auto choose = [&](const Backend& backend) {
    const bool known = std::any_of(chosen.begin(), chosen.end(),
                                   [&](const Choice& choice) { return choice.backend == &backend; });
    if (known) return;
    const auto found = all.find(backend.name);
    chosen.push_back({.backend = &backend, .settings = found == all.end() ? Settings() : found->second});
  };
  for (const std::string& name : split(names)) {
    if (name == "all") {
      for (const Backend& backend : backends()) choose(backend);
    } else {
      choose(find_backend(name));
    }
  }
  if (chosen.empty()) throw UsageError("--backends names no backend");
  return chosen;
}

Choice choose_backend(std::string_view name, std::span<const std::string> settings) {
  const Backend& backend = find_backend(name);
  Choice choice = {.backend = &backend, .settings = {}};
  for (auto& [named, values] : parse_settings(settings)) {
    if (named != backend.name) {
      throw UsageError("--set names the backend " + named + ", but " + backend.name + " is built");
    }
    choice.settings = values;
  }
  return choice;
}

std::string describe_backends() {
  std::string text;
  for (const Backend& backend : backends()) {
    text += backend.name + "\n    " + backend.summary + "\n";
    for (const Parameter& parameter : backend.parameters) {
      text += "    --set " + backend.name + "." + parameter.name + "=" + as_text(parameter.default_value) +
              "    " + parameter.help + "\n";
    }
  }
  return text;
}

}  // namespace topksoftmax::bench
