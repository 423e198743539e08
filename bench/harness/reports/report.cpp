// SPDX-License-Identifier: Apache-2.0
#include "harness/reports/report.hpp"

#include <algorithm>
#include <cmath>
#include <ostream>
#include <utility>

#include "harness/reports/notes.hpp"
#include "harness/reports/restlessness.hpp"
#include "harness/text/table.hpp"

namespace topksoftmax::bench {
namespace {

bool any_interval(const Measurement& measurement) {
  return std::any_of(measurement.rows.begin(), measurement.rows.end(),
                     [](const Row& row) { return !std::isnan(row.precision.log_z_width_mean); });
}

std::string note(const Row& row) {
  std::string text = row.slower_than_fused ? "slower than fused" : "";
  if (row.backend.starts_with("certify:")) {
    text += (text.empty() ? "" : "; ") + fixed(100.0 * row.precision.repaired_rate, 2) + " % repaired";
  }
  if (!row.settings.empty()) text += (text.empty() ? "" : "; ") + row.settings;
  return text;
}

/// The share of the machine's limit; none for a batch, whose queries read the same bytes together, and where
/// nobody knows what is read.
std::string share_of_limit(const Row& row, std::size_t batch) {
  if (batch > 1 || std::isnan(row.limit_gb_s)) return "-";
  return fixed(100.0 * row.read_gb_s / row.limit_gb_s, 0) + " %";
}

/// What threads did not help where others had several; empty: nothing. Other libraries share no query, and
/// the products of oneDNN, which hold the memory that they work on, take turns in batches too.
std::string remark_on_threads(const Measurement& measurement, const MeasureOptions& options) {
  if (options.threads == 1) return {};
  const bool single = options.batch == 1;
  std::string names;
  for (const Row& row : measurement.rows) {
    if (!row.backend.starts_with(single ? "peer:" : "peer:onednn")) continue;
    if (names == row.backend || names.ends_with(", " + row.backend)) continue;  // another of its settings
    names += (names.empty() ? "" : ", ") + row.backend;
  }
  if (names.empty()) return {};
  return (single ? "on one thread, as other libraries share no query: "
                 : "their products on one thread at a time: ") +
         names;
}

nlohmann::ordered_json number_or_null(double value) {
  return std::isnan(value) ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(value);
}

nlohmann::ordered_json errors_of(const LogProbError& error) {
  return {{"median", number_or_null(error.median)},
          {"p99", number_or_null(error.p99)},
          {"max", number_or_null(error.max)}};
}

}  // namespace

std::vector<std::string> remarks(const Measurer& measurer, const Measurement& measurement) {
  std::vector<std::string> all = measurement.notes;
  std::string on_threads = remark_on_threads(measurement, measurer.options());
  if (!on_threads.empty()) all.push_back(std::move(on_threads));
  double spread = measurement.reference_timing.spread;
  for (const Row& row : measurement.rows) spread = std::max(spread, row.timing.spread);
  for (std::string& remark : remarks_on_spread(spread)) all.push_back(std::move(remark));
  return all;
}

std::vector<std::string> table_header(const Measurer& measurer, const Measurement& measurement) {
  std::vector<std::string> header = {"backend", "µs/query", "speedup"};
  for (const std::size_t k : measurer.options().ks) header.push_back("P@" + std::to_string(k));
  header.insert(header.end(), {"screened", "candidates", "KB/query", "GB/s", "of limit", "index MB",
                               "build s", "build MB", "certified", "log p error", "p99", "worst"});
  if (any_interval(measurement)) header.emplace_back("log Z width");
  header.emplace_back("");
  return header;
}

std::vector<std::string> table_cells(const Measurer& measurer, const Measurement& measurement,
                                     const Row& row) {
  const Precision& precision = row.precision;
  std::vector<std::string> cells = {row.backend, three_digits(row.timing.seconds_per_item * 1e6),
                                    three_digits(row.speedup)};
  for (const std::size_t k : measurer.options().ks) cells.push_back(fixed(row.precision_at(k), 4));
  cells.insert(cells.end(), {three_digits(precision.screened_mean), three_digits(precision.candidates_mean),
                             three_digits(precision.bytes_read_mean * 1e-3), fixed(row.read_gb_s, 1),
                             share_of_limit(row, measurer.options().batch),
                             fixed(static_cast<double>(row.index_bytes) * 1e-6, 2),
                             fixed(row.build_seconds, 2), fixed(row.build_bytes * 1e-6, 0),
                             fixed(precision.certified_rate, 3), fixed(precision.log_prob_error.median, 6),
                             fixed(precision.log_prob_error.p99, 6), fixed(precision.log_prob_error.max, 6)});
  if (any_interval(measurement)) cells.push_back(fixed(precision.log_z_width_mean, 4));
  cells.push_back(note(row));
  return cells;
}

void print_heading(const Machine& machine, const Measurer& measurer, const Measurement& measurement,
                   std::ostream& out) {
  const Head& head = measurer.head();
  const MeasureOptions& options = measurer.options();
  out << machine.cpu << ", " << machine.cores << (machine.cores == 1 ? " core, " : " cores, ") << machine.simd
      << ", reads " << fixed(measurement.read_gb_s, 1) << " GB/s from a buffer of the layer's size"
      << (options.threads == 1 ? "" : " on " + std::to_string(options.threads) + " threads") << '\n'
      << head.name << ": V = " << head.layer.vocab() << ", d = " << head.layer.dim() << ", "
      << weight_type_name(head.layer.weight_type()) << ", "
      << fixed(static_cast<double>(head.layer.bytes()) * 1e-6, 2) << " MB; " << head.train.rows()
      << " training contexts, measured on " << measurer.queries() << " of " << head.test.rows()
      << " test contexts\n"
      << (options.threads == 1 ? "one thread, " : std::to_string(options.threads) + " threads, ")
      << (options.batch == 1 ? "one query at a time" : "batches of " + std::to_string(options.batch))
      << "; speedup is against " << measurement.reference << ", the fastest exact row of this run ("
      << three_digits(measurement.reference_timing.seconds_per_item * 1e6) << " µs)\n";
  const std::string concentration = describe(measurer.concentration());
  if (!concentration.empty()) out << concentration << '\n';
  print_notes(remarks(measurer, measurement), out);
}

void print_rows(const Measurer& measurer, const Measurement& measurement, std::ostream& out) {
  Table table(table_header(measurer, measurement));
  for (const Row& row : measurement.rows) table.add(table_cells(measurer, measurement, row));
  table.print(out);
}

nlohmann::ordered_json to_json(const Machine& machine) {
  return {{"cpu", machine.cpu}, {"cores", machine.cores}, {"simd", machine.simd}};
}

nlohmann::ordered_json to_json(const Machine& machine, double read_gb_s) {
  nlohmann::ordered_json json = to_json(machine);
  json["read_gb_s"] = read_gb_s;
  return json;
}

nlohmann::ordered_json to_json(const Head& head) {
  return {{"file", head.file},
          {"name", head.name},
          {"vocab", head.layer.vocab()},
          {"dim", head.layer.dim()},
          {"type", weight_type_name(head.layer.weight_type())},
          {"train", head.train.rows()},
          {"test", head.test.rows()}};
}

nlohmann::ordered_json to_json(const Machine& machine, const Measurer& measurer,
                               const Measurement& measurement) {
  nlohmann::ordered_json json;
  json["machine"] = to_json(machine, measurement.read_gb_s);
  json["head"] = to_json(measurer.head());
  if (!describe(measurer.concentration()).empty()) {
    json["head"]["concentration"] = to_json(measurer.concentration());
  }
  json["threads"] = measurer.options().threads;
  json["batch"] = measurer.options().batch;
  json["contexts"] = measurer.queries();
  json["rounds"] = measurer.options().rounds;
  json["reference"] = {{"backend", measurement.reference},
                       {"us_per_query", measurement.reference_timing.seconds_per_item * 1e6},
                       {"spread", measurement.reference_timing.spread}};
  json["notes"] = remarks(measurer, measurement);
  json["results"] = nlohmann::ordered_json::array();
  for (const Row& row : measurement.rows) {
    const Precision& precision = row.precision;
    nlohmann::ordered_json p_at;
    for (const std::size_t k : measurer.options().ks) {
      p_at[std::to_string(k)] = row.precision_at(k);
    }
    nlohmann::ordered_json result = {{"backend", row.backend},
                                     {"params", row.params},
                                     {"us_per_query", row.timing.seconds_per_item * 1e6},
                                     {"speedup", row.speedup},
                                     {"spread", row.timing.spread},
                                     {"slower_than_fused", row.slower_than_fused},
                                     {"p_at", p_at},
                                     {"bytes_per_query", number_or_null(precision.bytes_read_mean)},
                                     {"read_gb_s", number_or_null(row.read_gb_s)},
                                     {"limit_gb_s", number_or_null(row.limit_gb_s)},
                                     {"index_bytes", row.index_bytes},
                                     {"build_seconds", row.build_seconds},
                                     {"build_peak_bytes", number_or_null(row.build_bytes)},
                                     {"screened_mean", number_or_null(precision.screened_mean)},
                                     {"candidates_mean", number_or_null(precision.candidates_mean)},
                                     {"certified_rate", precision.certified_rate},
                                     {"log_prob_error", errors_of(precision.log_prob_error)}};
    if (row.backend.starts_with("certify:")) result["repaired_rate"] = precision.repaired_rate;
    if (!std::isnan(precision.log_z_width_mean)) result["log_z_width_mean"] = precision.log_z_width_mean;
    json["results"].push_back(std::move(result));
  }
  return json;
}

}  // namespace topksoftmax::bench
