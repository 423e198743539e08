// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "harness/progress.hpp"
#include "topksoftmax/registry/registry.hpp"

namespace CLI {
class App;
}

namespace topksoftmax::bench {

/// What is done once the arguments are read, with the backends of a registry: prints what it finds. Throws
/// UsageError and Error.
using Action = std::function<void(const Registry& registry, std::ostream& out, Progress& progress)>;

/// Something that the harness does instead of measuring: its first argument names it.
struct Command {
  std::string name;
  std::string summary;
  /// Declares the command's own options. The action works with the values that they have by then.
  Action (*declare)(CLI::App& app);
};

/// All of them. A new one is a file in commands/, and a line here.
std::vector<Command> commands();

}  // namespace topksoftmax::bench
