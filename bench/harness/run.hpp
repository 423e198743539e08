// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>

#include "harness/command_line.hpp"
#include "harness/progress.hpp"

namespace topksoftmax::bench {

/// Does what the command line asks for. Throws UsageError and Error.
void run(const Registry& registry, const CommandLine& line, std::ostream& out, Progress& progress);

}  // namespace topksoftmax::bench
