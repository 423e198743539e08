// SPDX-License-Identifier: Apache-2.0
#include "harness/command.hpp"

#include "harness/commands/tune.hpp"

namespace topksoftmax::bench {

std::vector<Command> commands() {
  return {
      {"tune", "Finds the fastest backend whose precision reaches a target, with confidence", declare_tune}};
}

}  // namespace topksoftmax::bench
