// SPDX-License-Identifier: Apache-2.0
#include "harness/command.hpp"

#include "harness/commands/tune.hpp"

namespace topksoftmax::bench {

std::vector<Command> commands() {
  return {{"tune", "Finds the fastest backend whose precision is proven to reach a target", declare_tune}};
}

}  // namespace topksoftmax::bench
