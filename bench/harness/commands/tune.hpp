// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "harness/command_line/command.hpp"

namespace topksoftmax::bench {

/// The command tune: tries settings of every backend on a head file's contexts.train (see tune), prints
/// them all, marks the one to take and says how it is built.
Action declare_tune(CLI::App& app);

}  // namespace topksoftmax::bench
