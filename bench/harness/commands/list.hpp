// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "harness/command_line/command.hpp"

namespace topksoftmax::bench {

/// The command list: shows the backends of the registry and their parameters.
Action declare_list(CLI::App& app);

}  // namespace topksoftmax::bench
