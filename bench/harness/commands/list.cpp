// SPDX-License-Identifier: Apache-2.0
#include "harness/commands/list.hpp"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <ostream>

#include "harness/backends/choice.hpp"
#include "harness/command_line/validators.hpp"
#include "harness/files/output_file.hpp"

namespace topksoftmax::bench {
namespace {

struct Request {
  bool names = false;
  std::filesystem::path json;  ///< empty: none is written
};

void run_list(const Request& request, const Invocation& invocation) {
  std::ostream& out = text_output({request.json}, invocation);
  if (request.names) {
    for (const BackendDescription& backend : invocation.registry.descriptions()) out << backend.name << '\n';
  } else {
    out << describe_backends(invocation.registry);
  }
  out.flush();
  if (!request.json.empty()) write_json(request.json, backends_as_json(invocation.registry));
}

}  // namespace

Action declare_list(CLI::App& app) {
  const auto request = std::make_shared<Request>();
  app.add_flag("--names", request->names, "The names alone, one a line");
  app.add_option("--json", request->json, "Write the list to this file too; -: to standard output")
      ->check(file_name())
      ->type_name("OUT");
  return [request](const Invocation& invocation) { run_list(*request, invocation); };
}

}  // namespace topksoftmax::bench
