// SPDX-License-Identifier: Apache-2.0
#include "harness/commands/plot.hpp"

#include <CLI/CLI.hpp>
#include <array>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "harness/command_line/usage_error.hpp"
#include "harness/command_line/validators.hpp"
#include "harness/files/folder.hpp"
#include "harness/files/open_file.hpp"
#include "harness/files/output_file.hpp"
#include "harness/reports/figures.hpp"
#include "harness/reports/plot.hpp"
#include "topksoftmax/error.hpp"

namespace topksoftmax::bench {
namespace {

struct Request {
  std::string figure;
  std::vector<std::filesystem::path> measurements;
  std::size_t k = 5;
  std::string theme = "light";
  std::filesystem::path out;
};

MeasurementFile read_measurement(const std::filesystem::path& path) {
  if (is_folder(path)) {
    throw Error(path.string() + ": is a folder, not a measurement that measure --json has written");
  }
  std::ifstream file = open_file(path);
  nlohmann::json measurement = nlohmann::json::parse(file, nullptr, false);
  if (measurement.is_discarded()) throw Error(path.string() + ": is not valid JSON");
  return {.name = path.string(), .measurement = std::move(measurement)};
}

/// Throws UsageError for the name of a file of another format.
void check_ending(const std::filesystem::path& out) {
  const std::string ending = out.extension().string();
  if (ending.empty() || ending == ".svg") return;
  throw UsageError("--out " + out.string() + ": figures are written as SVG; name a file that ends in .svg");
}

void run_plot(const Request& request, const Invocation& invocation) {
  std::ostream& out = text_output({request.out}, invocation);
  std::vector<NamedFile> inputs;
  for (const std::filesystem::path& path : request.measurements) inputs.push_back({"--json", path});
  check_distinct(std::array{NamedFile{"--out", request.out}}, inputs);
  check_ending(request.out);
  check_output(request.out);
  std::vector<MeasurementFile> measurements;
  for (const std::filesystem::path& path : request.measurements)
    measurements.push_back(read_measurement(path));
  const std::vector<PlotPanel> panels = request.figure == "precision"
                                            ? precision_figure(measurements, request.k)
                                            : vocabulary_figure(measurements);
  write_output(request.out, svg_file(panels, request.theme == "dark" ? PlotTheme::dark : PlotTheme::light));
  out << request.out.string() << ": " << request.figure << " of " << measurements.size()
      << (measurements.size() == 1 ? " measurement\n" : " measurements\n");
}

}  // namespace

Action declare_plot(CLI::App& app) {
  const auto request = std::make_shared<Request>();
  app.add_option("figure", request->figure,
                 "precision: P@k against speedup, a panel for each head; vocabulary: time against V")
      ->check(CLI::IsMember({"precision", "vocabulary"}))
      ->required();
  app.add_option("--json", request->measurements, "Measurements that --json has written, one for each head")
      ->type_name("FILE")
      ->required();
  app.add_option("--k", request->k, "The k of P@k")->check(count())->type_name("K")->capture_default_str();
  app.add_option("--theme", request->theme, "Whether the background is light or dark")
      ->check(CLI::IsMember({"light", "dark"}))
      ->capture_default_str();
  app.add_option("--out", request->out, "The SVG file to write; -: standard output")
      ->check(file_name())
      ->type_name("OUT")
      ->required();
  return [request](const Invocation& invocation) { run_plot(*request, invocation); };
}

}  // namespace topksoftmax::bench
