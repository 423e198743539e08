// SPDX-License-Identifier: Apache-2.0
#include "harness/run.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <ostream>

#include "harness/head.hpp"
#include "harness/machine.hpp"
#include "harness/measurer.hpp"
#include "harness/registry.hpp"
#include "harness/report.hpp"
#include "topksoftmax/error.hpp"

namespace topksoftmax::bench {
namespace {

/// Opened before anything is measured, so that a wrong name costs nothing.
std::ofstream open_output(const std::filesystem::path& path) {
  std::ofstream file(path);
  if (!file) throw Error(path.string() + ": cannot be written: " + std::strerror(errno));
  return file;
}

/// Builds the chosen backends. Of "all", those that cannot be built for this head are left out, and said so.
std::vector<Contestant> build(const CommandLine& line, const std::vector<Choice>& choices,
                              const Measurer& measurer, std::ostream& out) {
  std::vector<Contestant> contestants;
  for (const Choice& choice : choices) {
    try {
      contestants.push_back(measurer.build(choice));
    } catch (const Error& error) {
      if (line.backends != "all") throw Error(choice.backend->name + ": " + error.what());
      measurer.progress().clear();
      out << "without " << choice.backend->name << ": " << error.what() << '\n';
    }
  }
  return contestants;
}

}  // namespace

void run(const CommandLine& line, std::ostream& out, Progress& progress) {
  if (!line.answer.empty() || line.list) {
    out << (line.list ? describe_backends() : line.answer);
    return;
  }
  const std::vector<Choice> choices = choose_backends(line.backends, line.settings);
  progress.show("reading " + line.head.string());
  const Head head = load_head(line.head);
  std::ofstream json;
  if (!line.json.empty()) json = open_output(line.json);

  const Machine machine = describe_machine();
  const Measurer measurer(head, line.measure, progress);
  const std::vector<Contestant> contestants = build(line, choices, measurer, out);
  const Measurement measurement = measurer.measure(contestants);
  print_heading(machine, measurer, measurement, out);
  out << '\n';
  print_rows(measurer, measurement, out);
  if (json.is_open()) {
    json << to_json(machine, measurer, measurement).dump(2) << std::endl;
    if (!json) throw Error(line.json.string() + ": cannot be written: " + std::strerror(errno));
  }
}

}  // namespace topksoftmax::bench
