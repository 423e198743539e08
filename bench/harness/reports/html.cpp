// SPDX-License-Identifier: Apache-2.0
#include "harness/reports/html.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "harness/measuring/sweep.hpp"
#include "harness/reports/front_curve.hpp"
#include "harness/reports/paper_tables.hpp"
#include "harness/reports/plot.hpp"
#include "harness/reports/report.hpp"
#include "harness/reports/scoreboard.hpp"
#include "harness/text/table.hpp"
#include "topksoftmax/evaluation/pareto_front.hpp"

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
table { border-collapse: collapse; font-size: .78rem; font-variant-numeric: tabular-nums; width: 100%; margin-top: .8rem; }
th, td { padding: .3rem .3rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th { color: var(--muted); font-weight: 600; vertical-align: bottom; white-space: normal; }
th:first-child, td:first-child, th.left, td.left { text-align: left; }
td.left { color: var(--muted); white-space: normal; overflow-wrap: break-word; }
td.name { white-space: nowrap; }
thead th.group { text-align: center; color: var(--text); }
td.begin, th.begin { border-left: 1px solid var(--line); }
tbody tr:hover { background: var(--shade); }
tr.first td { border-top: 1px solid var(--muted); }
strong { color: var(--accent); }
td.again { color: transparent; }
details summary { cursor: pointer; color: var(--accent); margin-top: 1rem; }
code, pre { font: .85rem/1.45 ui-monospace, "Cascadia Mono", "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
pre { white-space: pre-wrap; background: var(--shade); padding: .8rem 1rem; border: 1px solid var(--line); border-radius: .3rem; }
@media screen and (max-width: 72rem) {
  body { padding: 1.5rem 1rem 3rem; }
  table, tbody { display: block; }
  thead { display: none; }
  tr { display: grid; grid-template-columns: repeat(auto-fill, minmax(7rem, 1fr)); gap: .15rem .9rem; padding: .7rem 0; border-top: 1px solid var(--line); }
  td, td.begin { display: block; border: 0; padding: 0; text-align: left; white-space: normal; }
  td::before { content: attr(data-label); display: block; color: var(--muted); font-size: .78rem; }
  td.name { grid-column: 1 / -1; }
  td.left { grid-column: auto / span 2; }
  td.name { font-weight: 600; }
  td.name::before { display: none; }
  table { font-size: .85rem; }
  td.begin { grid-column-start: 1; }
  td.again { color: inherit; }
  td.empty { display: none; }
}
@page { size: A4; margin: 14mm 12mm; }
@media print {
  body { padding: 0; max-width: none; font-size: 10pt; }
  table { font-size: 6pt; table-layout: auto; }
  th, td { padding: .1rem .16rem; white-space: normal; }
  td:not(.left) { white-space: nowrap; }
  td.left { min-width: 3.5rem; }
  h2 { break-after: avoid; }
  tr { break-inside: avoid; }
  details { display: none; }
}
)";

/// A cell with its column's name, which narrow screens show beside it.
std::string cell(const std::string& label, const std::string& content, const char* css = "") {
  const std::string attribute = *css == '\0' ? "" : std::string(" class=\"") + css + "\"";
  return "<td" + attribute + " data-label=\"" + escape_html(label) + "\">" + content + "</td>";
}

std::string microseconds(const Row& row) {
  return three_digits(row.timing.seconds_per_item * 1e6);
}

/// A line about what is known of the work.
std::string tooltip_of_work(const Precision& precision) {
  std::string text;
  if (!std::isnan(precision.candidates_mean)) text = three_digits(precision.candidates_mean) + " candidates";
  if (!std::isnan(precision.bytes_read_mean)) {
    text += (text.empty() ? "" : ", ") + three_digits(precision.bytes_read_mean * 1e-3) + " KB read";
  }
  return text.empty() ? "" : "\n" + text;
}

/// "2.50× faster", or "2.50× slower".
std::string times_faster(double speedup) {
  return speedup < 1.0 ? three_digits(1.0 / speedup) + "× slower" : three_digits(speedup) + "× faster";
}

std::string tooltip(const Row& row) {
  return row.backend + (row.settings.empty() ? "" : " " + row.settings) + "\n" + times_faster(row.speedup) +
         ", " + microseconds(row) + " µs\nP@1 " + fixed(row.precision_at(1), 4) + ", P@5 " +
         fixed(row.precision_at(5), 4) + tooltip_of_work(row.precision);
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
    std::vector<TradeOff> settings;
    for (const Row* row : rows)
      settings.push_back({.precision = row->precision_at(k), .speed = row->speedup});
    curves.push_back(front_curve(rows.front()->backend, curves.size(), settings,
                                 [&](std::size_t i) { return place(*rows[i]); }));
  }
  return curves;
}

/// A plot for wide and for narrow screens, of which the page shows one.
std::string figure_of(const PlotPanel& panel, const std::string& caption) {
  return "<figure>\n" + svg_plot({panel}, PlotShape::wide) + svg_plot({panel}, PlotShape::narrow) +
         "<figcaption>" + caption + "</figcaption>\n</figure>\n";
}

std::string precision_figure(const Measurement& measurement, std::size_t k, double target) {
  std::vector<double> speedups = {1.0};
  std::vector<double> precisions;
  for (const Row& row : measurement.rows) {
    speedups.push_back(row.speedup);
    precisions.push_back(row.precision_at(k));
  }
  const std::string name = "P@" + std::to_string(k);
  PlotPanel panel;
  panel.x = log_axis("speedup over " + measurement.reference, speedups);
  panel.y = precision_axis(name, precisions);
  panel.curves = curves_at(measurement, k, [k](const Row& row) {
    return PlotPoint{.x = row.speedup, .y = row.precision_at(k), .tooltip = tooltip(row)};
  });
  panel.guides = {{.x1 = 1.0, .y1 = panel.y.low, .x2 = 1.0, .y2 = panel.y.high, .label = ""},
                  {.x1 = panel.x.low,
                   .y1 = target,
                   .x2 = panel.x.high,
                   .y2 = target,
                   .label = name + " = " + fixed(target, 2)}};
  return figure_of(panel, name +
                              " against speedup. Right and up is better. The vertical scale shows what is "
                              "missing to 1: each step up, fewer tokens are missed. Curves join the settings "
                              "that no other of the same system beats; faint dots are the others.");
}

std::string work_figure(const Measurement& all) {
  // Other libraries do not tell what they read.
  Measurement measurement = all;
  std::erase_if(measurement.rows, [](const Row& row) { return std::isnan(row.precision.bytes_read_mean); });
  if (measurement.rows.empty()) return "<p class=\"note\">No system here tells what it reads.</p>\n";
  std::vector<double> kilobytes;
  std::vector<double> times;
  std::vector<std::pair<double, double>> limits;
  for (const Row& row : measurement.rows) {
    const double read = row.precision.bytes_read_mean * 1e-3;
    kilobytes.push_back(read);
    times.push_back(row.timing.seconds_per_item * 1e6);
    limits.emplace_back(read, read / row.limit_gb_s);
  }
  PlotPanel panel;
  panel.curves = curves_at(measurement, 5, [](const Row& row) {
    return PlotPoint{.x = row.precision.bytes_read_mean * 1e-3,
                     .y = row.timing.seconds_per_item * 1e6,
                     .tooltip = tooltip(row)};
  });
  std::sort(limits.begin(), limits.end());
  // What was read of a larger buffer in less time would have been read of this one too.
  for (std::size_t i = limits.size(); i-- > 1;) {
    limits[i - 1].second = std::min(limits[i - 1].second, limits[i].second);
  }
  for (const auto& [read, microsecond] : limits) times.push_back(microsecond);
  for (std::size_t i = 1; i < limits.size(); ++i) {
    panel.guides.push_back({.x1 = limits[i - 1].first,
                            .y1 = limits[i - 1].second,
                            .x2 = limits[i].first,
                            .y2 = limits[i].second,
                            .label = ""});
  }
  panel.x = log_axis("KB read a query", kilobytes);
  panel.y = log_axis("µs a query", times);
  return figure_of(panel,
                   "Where the time goes. The dashed line is the least time in which this machine reads a "
                   "buffer of that size. What lies well above it computes, branches or waits instead.");
}

std::string standings_table(const Measurement& measurement) {
  const std::vector<Standing> all = standings(measurement);
  std::array<double, 3> fastest = {};
  for (const Standing& standing : all) {
    for (std::size_t t = 0; t < targets().size(); ++t) {
      if (standing.best[t] != nullptr) fastest[t] = std::max(fastest[t], standing.best[t]->speedup);
    }
  }
  std::string html = "<table>\n<thead><tr><th></th>";
  for (const Target& target : targets()) {
    html += "<th class=\"group begin\" colspan=\"4\">" + escape_html(target.name) + "</th>";
  }
  html += "</tr>\n<tr><th>system</th>";
  for (std::size_t t = 0; t < targets().size(); ++t) {
    html += "<th class=\"begin\">speedup</th><th>P@1</th><th>P@5</th><th class=\"left\">settings</th>";
  }
  html += "</tr></thead>\n<tbody>\n";
  for (const Standing& standing : all) {
    html += "<tr>" + cell("", escape_html(standing.backend), "name");
    for (std::size_t t = 0; t < targets().size(); ++t) {
      const Row* const row = standing.best[t];
      const std::string& target = targets()[t].name;
      if (row == nullptr) {
        html += cell(target, "–", "begin") + cell("P@1", "", "empty") + cell("P@5", "", "empty") +
                cell("", "", "left empty");
        continue;
      }
      const std::string speedup = three_digits(row->speedup) + "×";
      html +=
          cell(target, row->speedup >= fastest[t] ? "<strong>" + speedup + "</strong>" : speedup, "begin") +
          cell("P@1", fixed(row->precision_at(1), 3)) + cell("P@5", fixed(row->precision_at(5), 3)) +
          cell("settings", escape_html(row->settings), row->settings.empty() ? "left empty" : "left");
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table>\n";
}

/// The same table as print_rows().
std::string rows_table(const Measurer& measurer, const Measurement& measurement) {
  std::vector<std::string> header = table_header(measurer, measurement);
  header.back() = "notes";  // narrow screens show it beside each cell
  std::string html = "<table>\n<thead><tr>";
  for (std::size_t c = 0; c < header.size(); ++c) {
    html += (c + 1 < header.size() ? "<th>" : "<th class=\"left\">") + escape_html(header[c]) + "</th>";
  }
  html += "</tr></thead>\n<tbody>\n";
  const Row* previous = nullptr;
  for (const Row& row : measurement.rows) {
    const bool first = previous == nullptr || previous->backend != row.backend;
    previous = &row;
    const std::vector<std::string> cells = table_cells(measurer, measurement, row);
    html += (first ? "<tr class=\"first\">" : "<tr>") +
            cell("", escape_html(cells.front()), first ? "name" : "name again");
    for (std::size_t c = 1; c + 1 < cells.size(); ++c) html += cell(header[c], cells[c]);
    html += cell(header.back(), escape_html(cells.back()), cells.back().empty() ? "left empty" : "left") +
            "</tr>\n";
  }
  return html + "</tbody></table>\n";
}

/// Text to copy, folded up.
std::string to_copy(const std::string& name, const std::string& text) {
  return "<details><summary>" + name + "</summary><pre>" + escape_html(text) + "</pre></details>\n";
}

std::string papers(const Measurer& measurer, const Measurement& rows) {
  const std::vector<std::size_t>& ks = measurer.options().ks;
  return "<h2>For papers</h2>\n<p>The rows above to copy, as comma-separated values and as a LaTeX table "
         "(booktabs).</p>\n" +
         to_copy("CSV", to_csv(rows, ks)) +
         to_copy("LaTeX", to_latex(rows, ks, "Top-k softmax on " + measurer.head().name));
}

std::string facts(const Machine& machine, const Measurer& measurer, const Measurement& measurement,
                  const std::string& command) {
  const Head& head = measurer.head();
  const MeasureOptions& options = measurer.options();
  std::string concentration = describe(measurer.concentration());
  if (!concentration.empty()) {
    concentration.front() = 'E';
    concentration = " " + concentration + ".";
  }
  return "<p class=\"facts\">V = " + std::to_string(head.layer.vocab()) +
         " tokens, d = " + std::to_string(head.layer.dim()) + ", " +
         fixed(static_cast<double>(head.layer.bytes()) * 1e-6, 2) + " MB of " +
         std::string(weight_type_name(head.layer.weight_type())) + ". Learned from " +
         std::to_string(head.train.rows()) + " contexts, measured on " + std::to_string(measurer.queries()) +
         " others. " + escape_html(machine.cpu) + ", " + std::to_string(options.threads) +
         (options.threads == 1 ? " thread, " : " threads, ") +
         (options.batch == 1 ? "one query at a time" : "batches of " + std::to_string(options.batch)) +
         ", kernels for " + escape_html(machine.simd) + "; a buffer of the layer's size is read at " +
         fixed(measurement.read_gb_s, 1) + " GB/s." + concentration + "</p>\n<p class=\"facts\"><code>" +
         escape_html(command) + "</code></p>\n";
}

}  // namespace

std::string to_html(const Machine& machine, const Measurer& measurer, const Measurement& measurement,
                    const std::string& command) {
  const std::string title = "Top-k softmax on " + escape_html(measurer.head().name);
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>" +
      title + "</title>\n<style>" + kCss + plot_css() + "</style>\n</head>\n<body>\n";
  html += "<h1>" + title + "</h1>\n" + facts(machine, measurer, measurement, command);
  html += "<p>P@k is the share of the exact k best tokens that a system finds. Speedup is over " +
          escape_html(measurement.reference) + ", the fastest exact softmax of this run (" +
          three_digits(measurement.reference_timing.seconds_per_item * 1e6) +
          " µs a query); each was timed in turn with it in one process, medians over " +
          std::to_string(measurer.options().rounds) + " rounds.</p>\n";
  for (const std::string& remark : remarks(measurer, measurement)) {
    html += "<p class=\"note\">" + escape_html(remark) + "</p>\n";
  }
  html += "<h2>The fastest setting of each system</h2>\n" + standings_table(measurement);
  html += "<h2>Precision against speedup</h2>\n";
  html += precision_figure(measurement, 1, 0.99) + precision_figure(measurement, 5, 0.98);
  html += "<h2>Work</h2>\n" + work_figure(measurement);
  const Measurement best = pareto_rows(measurement, measurer.options().ks);
  html += "<h2>Every setting that no other of its system beats</h2>\n" + rows_table(measurer, best) +
          papers(measurer, best);
  return html + "</body>\n</html>\n";
}

}  // namespace topksoftmax::bench
