// SPDX-License-Identifier: Apache-2.0
#include "harness/commands/build.hpp"

#include <CLI/CLI.hpp>
#include <array>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "harness/backends/build_backend.hpp"
#include "harness/backends/choice.hpp"
#include "harness/backends/index_output.hpp"
#include "harness/command_line/validators.hpp"
#include "harness/files/output_file.hpp"
#include "harness/heads/head.hpp"
#include "harness/measuring/peak_memory.hpp"
#include "harness/reports/report.hpp"
#include "harness/text/progress.hpp"
#include "harness/text/table.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/io/index_file.hpp"
#include "topksoftmax/io/replace_file.hpp"
#include "topksoftmax/registry/standard_loader.hpp"
#include "topksoftmax/stopwatch.hpp"

namespace topksoftmax::bench {
namespace {

using Json = nlohmann::ordered_json;

struct Request {
  HeadSource head;
  std::string backend;
  std::vector<std::string> settings;
  std::filesystem::path out;
  std::filesystem::path json;  ///< empty: none is written
};

void run_build(const Request& request, const Invocation& invocation) {
  Progress& progress = invocation.progress;
  std::ostream& out = text_output({request.json}, invocation);
  const Choice choice = choose_backend(invocation.registry, request.backend, request.settings);
  if (!choice.backend->traits.has_index) {
    throw Error(choice.backend->name + ": this backend has no index that can be saved");
  }
  check_distinct(std::array{NamedFile{"--out", request.out}, NamedFile{"--json", request.json}},
                 files_of(request.head));
  check_target(request.out);
  if (!request.json.empty()) check_output(request.json);
  progress.show("reading " + request.head.head.string());
  const Head head = load_head(request.head);
  if (choice.backend->traits.needs_contexts) require_training_contexts(head);
  double seconds = 0.0;
  const PeakMemory memory;
  const std::unique_ptr<TopKSoftmax> built = [&] {
    const Stopwatch stopwatch(seconds);
    return build_backend(choice, head, progress);
  }();
  const double peak = memory.growth();
  progress.clear();
  const SavedIndex saved = save_index(*built, request.out, out);
  out << "built in " << fixed(seconds, 2) << " s, with " << fixed(peak * 1e-6, 0) << " MB at the peak, for "
      << head.name << ": V = " << head.layer.vocab() << ", d = " << head.layer.dim() << ", "
      << weight_type_name(head.layer.weight_type()) << "; load it with load_index()\n";
  out.flush();
  if (request.json.empty()) return;
  write_json(request.json, {{"head", to_json(head)},
                            {"backend", choice.backend->name},
                            {"params", values_of(*choice.backend, choice.settings)},
                            {"file", request.out.string()},
                            {"kind", saved.kind},
                            {"bytes", saved.bytes},
                            {"build_seconds", seconds},
                            {"build_peak_bytes", std::isnan(peak) ? Json(nullptr) : Json(peak)}});
}

}  // namespace

Action declare_build(CLI::App& app) {
  const auto request = std::make_shared<Request>();
  declare_head(app, request->head);
  app.add_option("--backend", request->backend, "One of those that list shows")
      ->type_name("NAME")
      ->required();
  app.add_option("--set", request->settings, "A parameter, as l2s.clusters=100; may be repeated")
      ->type_name("BACKEND.PARAMETER=VALUE");
  app.add_option("--out", request->out, "The file that the index is saved to")
      ->check(file_name())
      ->type_name("INDEX")
      ->required();
  app.add_option("--json", request->json, "Write what was built to this file too; -: to standard output")
      ->check(file_name())
      ->type_name("OUT");
  return [request](const Invocation& invocation) { run_build(*request, invocation); };
}

}  // namespace topksoftmax::bench
