// SPDX-License-Identifier: Apache-2.0
#include "harness/html.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>
#include <vector>

#include "harness/plot.hpp"
#include "harness/scoreboard.hpp"
#include "harness/sweep.hpp"
#include "harness/table.hpp"
#include "topksoftmax/evaluation/sweep.hpp"

namespace topksoftmax::bench {
namespace {

constexpr const char* kCss = R"(
:root { --ground:#fff; --text:#1b1f24; --muted:#5b6570; --line:#e3e7ec; --shade:#f5f7f9; --accent:#0067a8; color-scheme: light dark; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ground:#14171b; --text:#e4e8ec; --muted:#98a3ae; --line:#2b3138; --shade:#1b2026; --accent:#5cb8f0; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2.5rem 1.5rem 4rem; max-width: 72rem; background: var(--ground); color: var(--text); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .4rem; letter-spacing: -.01em; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .5rem; }
p { max-width: 46rem; margin: .4rem 0; }
.facts, figcaption, .note { color: var(--muted); font-size: .92rem; }
figure { margin: 1rem 0 0; break-inside: avoid; }
figcaption { max-width: 46rem; margin-top: .2rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; width: 100%; margin-top: .8rem; }
th, td { padding: .32rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { color: var(--muted); font-weight: 600; vertical-align: bottom; }
th:first-child, td:first-child, th.left, td.left { text-align: left; }
td.left { color: var(--muted); white-space: normal; min-width: 9rem; }
thead th.group { text-align: center; color: var(--text); }
td.begin, th.begin { border-left: 1px solid var(--line); }
tbody tr:hover { background: var(--shade); }
tr.first td { border-top: 1px solid var(--muted); }
strong { color: var(--accent); }
details summary { cursor: pointer; color: var(--accent); margin-top: 1rem; }
@media print {
  body { padding: 0; max-width: none; font-size: 10pt; }
  table { font-size: 7.5pt; }
  th, td { padding: .15rem .3rem; }
  h2 { break-after: avoid; }
  tr { break-inside: avoid; }
  .scroll { overflow: visible; }
}
)";

std::string cell(const std::string& content, const char* css = "") {
  const std::string attribute = *css == '\0' ? "" : std::string(" class=\"") + css + "\"";
  return "<td" + attribute + ">" + content + "</td>";
}

std::string microseconds(const Row& row) {
  return three_digits(row.timing.seconds_per_item * 1e6);
}

std::string tooltip(const Row& row) {
  return row.backend + (row.settings.empty() ? "" : " " + row.settings) + "\n" + three_digits(row.speedup) +
         "× faster, " + microseconds(row) + " µs\nP@1 " + fixed(row.precision_at(1), 4) + ", P@5 " +
         fixed(row.precision_at(5), 4) + "\n" + three_digits(row.precision.candidates_mean) +
         " candidates, " + three_digits(row.precision.bytes_read_mean * 1e-3) + " KB read";
}

/// The rows of each system, in their order.
std::vector<std::vector<const Row*>> by_system(const Measurement& measurement) {
  std::vector<std::vector<const Row*>> systems;
  for (const Row& row : measurement.rows) {
    if (systems.empty() || systems.back().front()->backend != row.backend) systems.emplace_back();
    systems.back().push_back(&row);
  }
  return systems;
}

/// A curve for each system, drawn through the rows that no other of the system beats at P@k.
std::vector<PlotCurve> curves_at(const Measurement& measurement, std::size_t k,
                                 const std::function<PlotPoint(const Row&)>& place) {
  std::vector<PlotCurve> curves;
  for (const std::vector<const Row*>& rows : by_system(measurement)) {
    PlotCurve curve{.name = rows.front()->backend, .style = curves.size(), .points = {}};
    std::vector<TradeOff> trade_offs;
    for (const Row* row : rows)
      trade_offs.push_back({.precision = row->precision_at(k), .speed = row->speedup});
    const std::vector<std::size_t> front = pareto_front(trade_offs);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (std::find(front.begin(), front.end(), i) != front.end()) continue;
      curve.points.push_back(place(*rows[i]));
      curve.points.back().on_curve = false;
    }
    for (const std::size_t i : front) curve.points.push_back(place(*rows[i]));
    curves.push_back(std::move(curve));
  }
  return curves;
}

std::string precision_figure(const Measurement& measurement, std::size_t k, double target) {
  std::vector<double> speedups = {1.0};
  std::vector<double> precisions;
  for (const Row& row : measurement.rows) {
    speedups.push_back(row.speedup);
    precisions.push_back(row.precision_at(k));
  }
  const std::string name = "P@" + std::to_string(k);
  const Axis x = log_axis("speedup over " + measurement.reference, speedups);
  const Axis y = precision_axis(name, precisions);
  const std::vector<PlotCurve> curves = curves_at(measurement, k, [k](const Row& row) {
    return PlotPoint{.x = row.speedup, .y = row.precision_at(k), .tooltip = tooltip(row)};
  });
  const std::string figure = svg_plot(
      x, y, curves,
      {{.x1 = 1.0, .y1 = y.low, .x2 = 1.0, .y2 = y.high, .label = ""},
       {.x1 = x.low, .y1 = target, .x2 = x.high, .y2 = target, .label = name + " = " + fixed(target, 2)}});
  return "<figure>\n" + figure + "<figcaption>" + name +
         " against speedup. Right and up is better. The vertical scale shows what is missing to 1: each step "
         "up, fewer tokens are missed. Curves join the settings that no other of the same system beats, "
         "faint "
         "dots are the others.</figcaption>\n</figure>\n";
}

std::string work_figure(const Measurement& all) {
  // Other libraries do not say what they read.
  Measurement measurement = all;
  std::erase_if(measurement.rows, [](const Row& row) { return row.precision.bytes_read_mean <= 0.0; });
  std::vector<double> kilobytes;
  std::vector<double> times;
  std::vector<std::pair<double, double>> limits;
  for (const Row& row : measurement.rows) {
    const double read = row.precision.bytes_read_mean * 1e-3;
    kilobytes.push_back(read);
    times.push_back(row.timing.seconds_per_item * 1e6);
    limits.emplace_back(read, read / row.limit_gb_s);
  }
  std::vector<PlotCurve> curves = curves_at(measurement, 5, [](const Row& row) {
    return PlotPoint{.x = row.precision.bytes_read_mean * 1e-3,
                     .y = row.timing.seconds_per_item * 1e6,
                     .tooltip = tooltip(row)};
  });
  std::sort(limits.begin(), limits.end());
  for (const auto& [read, microsecond] : limits) times.push_back(microsecond);
  std::vector<PlotGuide> guides;
  for (std::size_t i = 1; i < limits.size(); ++i) {
    guides.push_back({.x1 = limits[i - 1].first,
                      .y1 = limits[i - 1].second,
                      .x2 = limits[i].first,
                      .y2 = limits[i].second,
                      .label = ""});
  }
  return "<figure>\n" +
         svg_plot(log_axis("KB read a query", kilobytes), log_axis("µs a query", times), curves, guides) +
         "<figcaption>What the time goes to. The dashed line is the least time in which this machine reads a "
         "buffer of that size; what lies well above it computes, branches or waits instead of reading."
         "</figcaption>\n</figure>\n";
}

std::string standings_table(const Measurement& measurement) {
  const std::vector<Standing> all = standings(measurement);
  std::array<double, 3> fastest = {};
  for (const Standing& standing : all) {
    for (std::size_t t = 0; t < targets().size(); ++t) {
      if (standing.best[t] != nullptr) fastest[t] = std::max(fastest[t], standing.best[t]->speedup);
    }
  }
  std::string html = "<div class=\"scroll\"><table>\n<thead><tr><th></th>";
  for (const Target& target : targets()) {
    html += "<th class=\"group begin\" colspan=\"4\">" + escape_html(target.name) + "</th>";
  }
  html += "</tr>\n<tr><th>system</th>";
  for (std::size_t t = 0; t < targets().size(); ++t) {
    html += "<th class=\"begin\">speedup</th><th>P@1</th><th>P@5</th><th class=\"left\">settings</th>";
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const Standing& standing : all) {
    html += "<tr>" + cell(escape_html(standing.backend));
    for (std::size_t t = 0; t < targets().size(); ++t) {
      const Row* const row = standing.best[t];
      if (row == nullptr) {
        html += cell("–", "begin") + cell("") + cell("") + cell("", "left");
        continue;
      }
      const std::string speedup = three_digits(row->speedup) + "×";
      html += cell(row->speedup >= fastest[t] ? "<strong>" + speedup + "</strong>" : speedup, "begin") +
              cell(fixed(row->precision_at(1), 3)) + cell(fixed(row->precision_at(5), 3)) +
              cell(escape_html(row->settings), "left");
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string rows_table(const Measurement& measurement, const std::vector<std::size_t>& ks) {
  std::string html =
      "<div class=\"scroll\"><table>\n<thead><tr><th>system</th><th>µs/query</th><th>speedup</th>";
  for (const std::size_t k : ks) html += "<th>P@" + std::to_string(k) + "</th>";
  html +=
      "<th>screened</th><th>candidates</th><th>KB/query</th><th>GB/s</th><th>of limit</th><th>index MB</th>"
      "<th>build s</th><th>certified</th><th>log p error</th><th>p99</th><th>worst</th><th "
      "class=\"left\">settings</th></tr></thead>\n<tbody>\n";
  const Row* previous = nullptr;
  for (const Row& row : measurement.rows) {
    const bool first = previous == nullptr || previous->backend != row.backend;
    previous = &row;
    const Precision& precision = row.precision;
    html += (first ? "<tr class=\"first\">" : "<tr>") + cell(first ? escape_html(row.backend) : "") +
            cell(microseconds(row)) + cell(three_digits(row.speedup) + "×");
    for (const std::size_t k : ks) html += cell(fixed(row.precision_at(k), 4));
    html += cell(three_digits(precision.screened_mean)) + cell(three_digits(precision.candidates_mean)) +
            cell(three_digits(precision.bytes_read_mean * 1e-3)) + cell(fixed(row.read_gb_s, 1)) +
            cell(fixed(100.0 * row.read_gb_s / row.limit_gb_s, 0) + " %") +
            cell(fixed(static_cast<double>(row.index_bytes) * 1e-6, 2)) + cell(fixed(row.build_seconds, 2)) +
            cell(fixed(precision.certified_rate, 3)) + cell(fixed(precision.log_prob_error.median, 4)) +
            cell(fixed(precision.log_prob_error.p99, 4)) + cell(fixed(precision.log_prob_error.max, 4)) +
            cell(escape_html(row.settings), "left") + "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

std::string facts(const Machine& machine, const Measurer& measurer, const Measurement& measurement) {
  const Head& head = measurer.head();
  const MeasureOptions& options = measurer.options();
  return "<p class=\"facts\">V = " + std::to_string(head.layer.vocab()) +
         " tokens, d = " + std::to_string(head.layer.dim()) + ", " +
         fixed(static_cast<double>(head.layer.bytes()) * 1e-6, 2) + " MB of " +
         std::string(weight_type_name(head.layer.weight_type())) + ". Learned from " + std::to_string(head.train.rows()) +
         " contexts, measured on " + std::to_string(measurer.queries()) + " others. " +
         escape_html(machine.cpu) + ", " + std::to_string(options.threads) +
         (options.threads == 1 ? " thread, " : " threads, ") +
         (options.batch == 1 ? "one query at a time" : "batches of " + std::to_string(options.batch)) +
         ", kernels for " + escape_html(machine.simd) + "; a buffer of the layer's size is read at " +
         fixed(measurement.read_gb_s, 1) + " GB/s.</p>\n";
}

}  // namespace

std::string to_html(const Machine& machine, const Measurer& measurer, const Measurement& measurement) {
  const std::string title = "Top-k softmax on " + escape_html(measurer.head().name);
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
      title + "</title>\n<style>" + kCss + plot_css() + "</style>\n</head>\n<body>\n";
  html += "<h1>" + title + "</h1>\n" + facts(machine, measurer, measurement);
  html += "<p>P@k is the share of the exact k best tokens that a system finds. Speedup is over " +
          escape_html(measurement.reference) + ", the fastest exact softmax of this run (" +
          three_digits(measurement.reference_seconds * 1e6) +
          " µs a query); all were timed in turn in one process, medians over " +
          std::to_string(measurer.options().rounds) + " rounds.</p>\n";
  for (const std::string& note : measurement.notes)
    html += "<p class=\"note\">" + escape_html(note) + "</p>\n";
  html += "<h2>The fastest setting of each system</h2>\n" + standings_table(measurement);
  html += "<h2>Precision against speedup</h2>\n";
  html += precision_figure(measurement, 1, 0.99) + precision_figure(measurement, 5, 0.98);
  html += "<h2>Work</h2>\n" + work_figure(measurement);
  html += "<h2>Every setting that no other of its system beats</h2>\n" +
          rows_table(pareto_rows(measurement, measurer.options().ks), measurer.options().ks);
  return html + "</body>\n</html>\n";
}

}  // namespace topksoftmax::bench
