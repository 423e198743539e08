// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topksoftmax/registry/registry.hpp"

namespace topksoftmax::bench {

/// A backend with the settings that it is to be built with.
struct Choice {
  std::shared_ptr<const BackendDescription> backend;
  Settings settings;
};

/// The backend of this name. Throws UsageError, which says what was meant or lists the names, if there is
/// none.
std::shared_ptr<const BackendDescription> find_backend(const Registry& registry, std::string_view name);

/// The backends that --backends names ("all", or names separated by commas, each once, in that order) with
/// the settings of --set ("backend.parameter=value" each; for backends that were not chosen too, so that one
/// command line serves many choices). Throws UsageError for unknown names, parameters and values, and for a
/// parameter that is set twice.
std::vector<Choice> choose_backends(const Registry& registry, std::string_view names,
                                    std::span<const std::string> settings);

/// Throws UsageError where one of these settings of --set is of a backend that was not chosen.
void check_all_chosen(std::span<const Choice> choices, std::span<const std::string> settings);

/// Throws UsageError where the backend of this name is known to take no QueryOptions::effort: one that is
/// exact, or scans all, and has no trade-off.
void check_effort(const Registry& registry, std::string_view name);

/// The backend of this name, alone, with the settings of --set. Throws UsageError as above, and for settings
/// of other backends.
Choice choose_backend(const Registry& registry, std::string_view name, std::span<const std::string> settings);

/// The same choice for answers of k tokens: see BackendDescription::suited_to().
Choice suited_to(std::size_t k, Choice choice);

/// Every parameter's value under these settings; null: the backend chooses it. Throws Error as
/// BackendDescription::values().
nlohmann::json values_of(const BackendDescription& backend, const Settings& settings);

/// Names, parameters, defaults and ranges, as the command list prints them.
std::string describe_backends(const Registry& registry);

/// The same for programs: an array of {"name", "summary", "has_index", "options": [{"name", "default",
/// "help", "range"}]}. A range is text, "from 2 to 1024", and empty where there is none.
nlohmann::ordered_json backends_as_json(const Registry& registry);

}  // namespace topksoftmax::bench
