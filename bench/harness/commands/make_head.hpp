// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "harness/command_line/command.hpp"

namespace topksoftmax::bench {

/// The command make-head: writes a synthetic head, as hard as those of transformers are, to a head file.
Action declare_make_head(CLI::App& app);

}  // namespace topksoftmax::bench
