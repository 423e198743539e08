// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>

#include "harness/command_line/command.hpp"

namespace topksoftmax::bench {

/// What the arguments ask for.
struct CommandLine {
  std::string command;  ///< the program and its arguments, as a shell would read them
  Action action;
  std::shared_ptr<const void> options;  ///< what the action was declared with, and works with
};

/// Reads the arguments of main() of a program of this name and these commands: a command and its options.
/// Options without a command are those of measure, and --list is the command list. Throws UsageError.
CommandLine parse_command_line(const std::string& program, std::span<const Command> commands, int argc,
                               const char* const* argv);

}  // namespace topksoftmax::bench
