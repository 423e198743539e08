// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "harness/command_line/command.hpp"

namespace topksoftmax::bench {

/// The command inspect: prints what a safetensors file says of itself and its tensors; of an index
/// also, where asked, whether its checksum holds and whether it fits a head file's layer.
Action declare_inspect(CLI::App& app);

}  // namespace topksoftmax::bench
