// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "harness/command_line/command.hpp"

namespace topksoftmax::bench {

/// All commands of the tool, in the order of --help. A new one is a file in this folder, and a line here.
std::vector<Command> commands();

}  // namespace topksoftmax::bench
