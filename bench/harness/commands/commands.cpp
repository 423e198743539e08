// SPDX-License-Identifier: Apache-2.0
#include "harness/commands/commands.hpp"

#include "harness/commands/ask.hpp"
#include "harness/commands/build.hpp"
#include "harness/commands/inspect.hpp"
#include "harness/commands/list.hpp"
#include "harness/commands/make_head.hpp"
#include "harness/commands/measure.hpp"
#include "harness/commands/plot.hpp"
#include "harness/commands/tune.hpp"

namespace topksoftmax::bench {

std::vector<Command> commands() {
  return {
      {"measure", "Measures backends against each other and against other libraries on a head",
       "measure --head head.safetensors\n"
       "measure --head ~/models/Qwen3-0.6B --contexts contexts.npz --backends fused,l2s,certified\n"
       "measure --head model.gguf --contexts contexts.npy --threads 2 --json - | jq .results\n"
       "measure --head head.safetensors --sweep --html report.html",
       declare_measure},
      {"tune", "Finds the fastest backend whose precision reaches a target, with confidence",
       "tune --head head.safetensors --target p5=0.99\n"
       "tune --head head.safetensors --target p1=1 --max-index-mb 50 --out best.index",
       declare_tune},
      {"build", "Builds a backend on a head and saves its index",
       "build --head head.safetensors --backend certified --out certified.index\n"
       "build --head head.safetensors --backend l2s --set l2s.clusters=200 --out l2s.index",
       declare_build},
      {"ask", "Answers contexts: the k most probable tokens with their log-probabilities",
       "ask --head head.safetensors --index certified.index --contexts contexts.npy --k 5\n"
       "echo 0.1 -0.3 0.2 | ask --head W.npy\n"
       "ask --head head.safetensors --backend certified --contexts contexts.npy --json answers.jsonl",
       declare_ask},
      {"inspect", "Tells what is in an index, a head, a model, NumPy's arrays or any other safetensors file",
       "inspect certified.index --verify --head head.safetensors\n"
       "inspect ~/models/Qwen3-0.6B\n"
       "inspect model.gguf --json -",
       declare_inspect},
      {"list", "Shows the backends and their parameters", "list\nlist --names", declare_list},
      {"make-head", "Writes a synthetic head file, as hard as those of transformers are",
       "make-head --vocab 32000 --dim 1024 --alpha 1 --type bf16 --out synthetic.safetensors",
       declare_make_head},
      {"plot", "Draws a figure of measurements that --json has written",
       "plot precision --json sweep.json --out figure.svg", declare_plot},
  };
}

}  // namespace topksoftmax::bench
