// SPDX-License-Identifier: Apache-2.0
#include "harness/commands/build.hpp"

#include <CLI/CLI.hpp>
#include <array>
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "harness/build_backend.hpp"
#include "harness/choice.hpp"
#include "harness/head.hpp"
#include "harness/index_output.hpp"
#include "harness/output_file.hpp"
#include "harness/table.hpp"
#include "harness/validators.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/evaluation/stopwatch.hpp"
#include "topksoftmax/io/index_file.hpp"
#include "topksoftmax/io/replace_file.hpp"
#include "topksoftmax/registry/standard_loader.hpp"

namespace topksoftmax::bench {
namespace {

struct Request {
  std::filesystem::path head;
  std::string backend;
  std::vector<std::string> settings;
  std::filesystem::path out;
};

void run_build(const Request& request, const Registry& registry, std::ostream& out, Progress& progress) {
  const Choice choice = choose_backend(registry, request.backend, request.settings);
  if (!choice.backend->traits.has_index) {
    throw Error(choice.backend->name + ": this backend has no index that can be saved");
  }
  check_distinct(std::array{Output{"--out", request.out}}, request.head);
  check_target(request.out);
  progress.show("reading " + request.head.string());
  const Head head = load_head(request.head);
  double seconds = 0.0;
  const std::unique_ptr<TopKSoftmax> built = [&] {
    const Stopwatch stopwatch(seconds);
    return build_backend(choice, head, progress);
  }();
  progress.clear();
  save_index(*built, request.out, out);
  out << "built in " << fixed(seconds, 2) << " s for " << head.name << ": V = " << head.layer.vocab()
      << ", d = " << head.layer.dim() << "; load it with load_index()\n";
}

}  // namespace

Action declare_build(CLI::App& app) {
  const auto request = std::make_shared<Request>();
  app.add_option("--head", request->head, "Head file (safetensors: weight, bias, contexts.train, counts)")
      ->type_name("FILE")
      ->required();
  app.add_option("--backend", request->backend, "One of those that --list shows")
      ->type_name("NAME")
      ->required();
  app.add_option("--set", request->settings, "A parameter, as l2s.clusters=100; may be repeated")
      ->type_name("BACKEND.PARAMETER=VALUE");
  app.add_option("--out", request->out, "The file that the index is saved to")
      ->check(file_name())
      ->type_name("INDEX")
      ->required();
  return [request](const Registry& registry, std::ostream& out, Progress& progress) {
    run_build(*request, registry, out, progress);
  };
}

}  // namespace topksoftmax::bench
