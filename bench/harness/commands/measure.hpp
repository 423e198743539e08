// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "harness/command_line/command.hpp"

namespace topksoftmax::bench {

/// The command measure: measures backends against each other and against other libraries on a head.
Action declare_measure(CLI::App& app);

}  // namespace topksoftmax::bench
