// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "harness/command_line/command.hpp"

namespace topksoftmax::bench {

/// The command build: builds a backend of the registry on a head file's layer and contexts.train, and
/// saves its index.
Action declare_build(CLI::App& app);

}  // namespace topksoftmax::bench
