// SPDX-License-Identifier: Apache-2.0
#include "harness/command.hpp"

#include "harness/commands/build.hpp"
#include "harness/commands/inspect.hpp"
#include "harness/commands/make_head.hpp"
#include "harness/commands/plot.hpp"
#include "harness/commands/tune.hpp"

namespace topksoftmax::bench {

std::vector<Command> commands() {
  return {
      {"build", "Builds a backend on a head file and saves its index", declare_build},
      {"inspect", "Tells what is in an index, a head file or any other safetensors file", declare_inspect},
      {"make-head", "Writes a synthetic head file, as hard as those of transformers are", declare_make_head},
      {"plot", "Draws a figure of measurements that --json has written", declare_plot},
      {"tune", "Finds the fastest backend whose precision reaches a target, with confidence", declare_tune}};
}

}  // namespace topksoftmax::bench
