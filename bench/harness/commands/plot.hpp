// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "harness/command_line/command.hpp"

namespace topksoftmax::bench {

/// The command plot: draws a figure of measurements that --json has written, as an SVG file of its own.
Action declare_plot(CLI::App& app);

}  // namespace topksoftmax::bench
