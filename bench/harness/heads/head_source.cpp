// SPDX-License-Identifier: Apache-2.0
#include "harness/heads/head_source.hpp"

#include <CLI/CLI.hpp>

#include "harness/command_line/validators.hpp"

namespace topksoftmax::bench {

std::vector<NamedFile> files_of(const HeadSource& source) {
  return {{"--head", source.head}, {"--contexts", source.contexts}};
}

void declare_layer(CLI::App& app, HeadSource& source) {
  app.add_option(
         "--head", source.head,
         "A softmax layer: a head file, a model's folder as Transformers save it, .safetensors, .gguf, "
         ".npy or .npz")
      ->check(file_name())
      ->type_name("FILE")
      ->required();
  declare_tensors(app, source);
}

void declare_tensors(CLI::App& app, HeadSource& source) {
  app.add_option("--tensor", source.tensor, "The name of the weights [V,d] in it, where that is not found")
      ->type_name("NAME");
  app.add_option("--bias", source.bias, "The name of the bias [V] in it, likewise")->type_name("NAME");
}

void declare_head(CLI::App& app, HeadSource& source) {
  declare_layer(app, source);
  app.add_option(
         "--contexts", source.contexts,
         "Contexts [N,d] of the model: .npy, .npz or .safetensors with contexts.train and contexts.test, or "
         "one array, whose last fifth is measured on")
      ->check(file_name())
      ->type_name("FILE");
}

}  // namespace topksoftmax::bench
