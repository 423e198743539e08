// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "harness/head.hpp"
#include "harness/usage_error.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/training/progress.hpp"

namespace topksoftmax::bench {

/// Parameters that differ from their defaults, as text: name → value.
using Settings = std::map<std::string, std::string, std::less<>>;

/// A parameter of a backend, as `--list` shows it.
struct Parameter {
  std::string name;
  std::string help;
  nlohmann::json default_value;
};

/// A parameter that --sweep varies, and the values that it takes on a head.
struct SweepAxis {
  std::string parameter;
  std::function<std::vector<std::size_t>(const Head&)> values;
  /// The QueryOptions::effort that stands for such a value, given all parameters' values: one build serves
  /// them all. Empty: each value needs a build. One axis of a backend at most has it.
  std::function<std::size_t(const nlohmann::json& values)> effort = {};
};

/// A backend as the harness knows it.
struct Backend {
  std::string name;
  std::string summary;
  std::vector<Parameter> parameters;

  /// Builds it for a head. Throws UsageError as values() does, Error for values that the backend refuses.
  std::function<std::unique_ptr<TopKSoftmax>(const Head&, const Settings&, const TrainingProgress&)> build;

  /// Every parameter's value under these settings. Throws UsageError for unknown names and for values that
  /// cannot be read.
  std::function<nlohmann::json(const Settings&)> values;

  /// What --sweep varies, every combination of it; empty: one point.
  std::vector<SweepAxis> sweep = {};

  /// Whether TopKSoftmax::save() is for it.
  bool has_index = true;

  /// Scores every token in float32: speedups are against the fastest of these.
  bool is_exact_fp32 = false;
};

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;

/// A parameter's value; null: the backend chooses it.
template <class T>
nlohmann::json value_as_json(const T& value) {
  if constexpr (is_optional<T>) {
    return value.has_value() ? nlohmann::json(*value) : nlohmann::json(nullptr);
  } else {
    return value;
  }
}

/// Reads a parameter's value. Throws UsageError.
template <class T>
T parse_value(std::string_view text) {
  if constexpr (is_optional<T>) {
    return parse_value<typename T::value_type>(text);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return std::string(text);
  } else if constexpr (std::is_same_v<T, bool>) {
    if (text == "true" || text == "1") return true;
    if (text == "false" || text == "0") return false;
    throw UsageError("must be true or false");
  } else {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
      throw UsageError(std::is_floating_point_v<T> ? "must be a number"
                       : std::is_unsigned_v<T>     ? "must be a whole number from 0 on"
                                                   : "must be a whole number");
    }
    return value;
  }
}

/// One field of a backend's options, as a parameter.
template <class Options>
struct Field {
  std::string name;
  std::string help;
  std::function<void(Options&, std::string_view)> set;
  std::function<nlohmann::json(const Options&)> get;
};

/// `reach` gives the field of an Options& or const Options&: for fields of fields.
template <class Options, class Reach>
Field<Options> field(std::string name, Reach reach, std::string help) {
  using T = std::remove_cvref_t<std::invoke_result_t<Reach, Options&>>;
  return {.name = std::move(name),
          .help = std::move(help),
          .set = [reach](Options& options,
                         std::string_view text) { std::invoke(reach, options) = parse_value<T>(text); },
          .get = [reach](const Options& options) { return value_as_json(std::invoke(reach, options)); }};
}

template <class Options, class T>
Field<Options> field(std::string name, T Options::*member, std::string help) {
  return field<Options, T Options::*>(std::move(name), member, std::move(help));
}

/// A field that takes one of a few values, each with a name.
template <class Options, class Enum>
Field<Options> choice_field(std::string name, Enum Options::*member,
                            std::vector<std::pair<std::string, Enum>> choices, const std::string& help) {
  std::string known;
  for (const auto& choice : choices) known += (known.empty() ? "" : ", ") + choice.first;
  return {.name = std::move(name),
          .help = help + ": " + known,
          .set =
              [member, choices, known](Options& options, std::string_view text) {
                const auto found = std::find_if(choices.begin(), choices.end(),
                                                [text](const auto& choice) { return choice.first == text; });
                if (found == choices.end()) throw UsageError("must be one of " + known);
                options.*member = found->second;
              },
          .get =
              [member, choices](const Options& options) {
                return nlohmann::json(
                    std::find_if(choices.begin(), choices.end(), [&options, member](const auto& choice) {
                      return choice.second == options.*member;
                    })->first);
              }};
}

/// Options with the settings applied. Throws UsageError.
template <class Options>
Options apply(const std::string& backend, const std::vector<Field<Options>>& fields,
              const Settings& settings) {
  Options options;
  for (const auto& [name, text] : settings) {
    const Field<Options>* found = nullptr;
    for (const Field<Options>& candidate : fields) {
      if (candidate.name == name) found = &candidate;
    }
    if (found == nullptr) {
      std::string known;
      for (const Field<Options>& candidate : fields) known += (known.empty() ? "" : ", ") + candidate.name;
      throw UsageError("backend " + backend + " has no parameter \"" + name + "\"; " +
                       (known.empty() ? "it has none" : "it has " + known));
    }
    try {
      found->set(options, text);
    } catch (const UsageError& error) {
      throw UsageError(backend + "." + name + " " + error.what() + ", not \"" + text + "\"");
    }
  }
  return options;
}

/// A backend whose parameters are fields of its options, with their defaults. `build` takes the head, the
/// options, and what to tell of its progress.
template <class Options, class Build>
Backend make_backend(std::string name, std::string summary, std::vector<Field<Options>> fields, Build build,
                     std::vector<SweepAxis> sweep = {}) {
  Backend backend;
  backend.name = name;
  backend.summary = std::move(summary);
  backend.sweep = std::move(sweep);
  const Options defaults;
  for (const Field<Options>& one : fields) {
    backend.parameters.push_back({.name = one.name, .help = one.help, .default_value = one.get(defaults)});
  }
  backend.values = [name, fields](const Settings& settings) {
    const Options options = apply(name, fields, settings);
    nlohmann::json values = nlohmann::json::object();
    for (const Field<Options>& one : fields) values[one.name] = one.get(options);
    return values;
  };
  backend.build = [name, fields, build](const Head& head, const Settings& settings,
                                        const TrainingProgress& progress) {
    return std::unique_ptr<TopKSoftmax>(build(head, apply(name, fields, settings), progress));
  };
  return backend;
}

/// Options of a backend that has none.
struct NoOptions {};

}  // namespace topksoftmax::bench
