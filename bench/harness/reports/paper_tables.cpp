// SPDX-License-Identifier: Apache-2.0
#include "harness/reports/paper_tables.hpp"

#include <array>
#include <cmath>
#include <cstdio>

#include "harness/text/table.hpp"

namespace topksoftmax::bench {
namespace {

/// Text in quotes where commas or quotes are in it (RFC 4180).
std::string csv_text(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

/// A number with six significant digits; nothing where there is none.
std::string csv_number(double value) {
  if (std::isnan(value)) return "";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", value);
  return text.data();
}

/// Text with what LaTeX takes for commands written out.
std::string latex_text(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '\\':
        escaped += "\\textbackslash{}";
        break;
      case '~':
        escaped += "\\textasciitilde{}";
        break;
      case '^':
        escaped += "\\textasciicircum{}";
        break;
      case '&':
      case '%':
      case '$':
      case '#':
      case '_':
      case '{':
      case '}':
        escaped += '\\';
        [[fallthrough]];
      default:
        escaped += c;
    }
  }
  return escaped;
}

}  // namespace

std::string to_csv(const Measurement& measurement, const std::vector<std::size_t>& ks) {
  std::string csv = "system,settings,us_per_query,speedup";
  for (const std::size_t k : ks) csv += ",p_at_" + std::to_string(k);
  csv +=
      ",candidates,bytes_per_query,index_bytes,build_seconds,build_peak_bytes,certified_rate,log_p_error_"
      "median,log_p_error_"
      "p99\n";
  for (const Row& row : measurement.rows) {
    const Precision& precision = row.precision;
    csv += csv_text(row.backend) + "," + csv_text(row.settings) + "," +
           csv_number(row.timing.seconds_per_item * 1e6) + "," + csv_number(row.speedup);
    for (const std::size_t k : ks) csv += "," + csv_number(row.precision_at(k));
    csv += "," + csv_number(precision.candidates_mean) + "," + csv_number(precision.bytes_read_mean) + "," +
           std::to_string(row.index_bytes) + "," + csv_number(row.build_seconds) + "," +
           csv_number(row.build_bytes) + "," + csv_number(precision.certified_rate) + "," +
           csv_number(precision.log_prob_error.median) + "," + csv_number(precision.log_prob_error.p99) +
           "\n";
  }
  return csv;
}

std::string to_latex(const Measurement& measurement, const std::vector<std::size_t>& ks,
                     const std::string& caption) {
  std::string latex = "\\begin{table}\n\\centering\n\\caption{" + latex_text(caption) +
                      "}\n\\begin{tabular}{llrr" + std::string(ks.size(), 'r') +
                      "r}\n\\toprule\nsystem & settings & $\\mu$s & speedup";
  for (const std::size_t k : ks) latex += " & P@" + std::to_string(k);
  latex += " & KB read \\\\\n\\midrule\n";
  for (const Row& row : measurement.rows) {
    latex += latex_text(row.backend) + " & " + latex_text(row.settings) + " & " +
             three_digits(row.timing.seconds_per_item * 1e6) + " & " + three_digits(row.speedup);
    for (const std::size_t k : ks) latex += " & " + fixed(row.precision_at(k), 4);
    latex += " & " + three_digits(row.precision.bytes_read_mean * 1e-3) + " \\\\\n";
  }
  return latex + "\\bottomrule\n\\end{tabular}\n\\end{table}\n";
}

}  // namespace topksoftmax::bench
