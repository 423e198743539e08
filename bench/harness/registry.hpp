// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/backend.hpp"

namespace topksoftmax::bench {

/// Every backend that was built in, in the order of the table.
std::span<const Backend> backends();

/// The backend of this name. Throws UsageError, which lists the names, if there is none.
const Backend& find_backend(std::string_view name);

/// A backend with the settings that it is to be built with.
struct Choice {
  const Backend* backend;
  Settings settings;
};

/// The backends that --backends names ("all", or names separated by commas, each once, in that order) with
/// the settings of --set ("backend.parameter=value" each; for backends that were not chosen too, so that one
/// command line serves many choices). Throws UsageError for unknown names, parameters and values.
std::vector<Choice> choose_backends(std::string_view names, std::span<const std::string> settings);

/// The backend of this name, alone, with the settings of --set. Throws UsageError as above, and for settings
/// of other backends.
Choice choose_backend(std::string_view name, std::span<const std::string> settings);

/// Names, parameters and defaults, as `--list` prints them.
std::string describe_backends();

}  // namespace topksoftmax::bench
