// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "harness/command_line/command.hpp"

namespace topksoftmax::bench {

/// The command ask: answers contexts of a file or of standard input, by an index or a backend that it builds.
Action declare_ask(CLI::App& app);

}  // namespace topksoftmax::bench
