// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <iosfwd>
#include <string>

#include "harness/text/progress.hpp"
#include "topksoftmax/registry/registry.hpp"

namespace CLI {
class App;
}

namespace topksoftmax::bench {

/// What a command works with once its arguments are read.
struct Invocation {
  const Registry& registry;
  const std::string& command;  ///< the program and its arguments, as a shell would read them
  std::ostream& out;           ///< standard output
  std::ostream& silence;       ///< takes what nobody wants to see
  Progress& progress;
};

/// Does what a command was asked for, and prints what it finds. Throws UsageError and Error.
using Action = std::function<void(const Invocation& invocation)>;

/// Something that the tool does: its first argument names it.
struct Command {
  std::string name;
  std::string summary;
  std::string examples;  ///< lines of a shell, without the program's name; of --help
  /// Declares the command's own options. The action works with the values that they have by then.
  Action (*declare)(CLI::App& app);
};

}  // namespace topksoftmax::bench
