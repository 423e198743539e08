// SPDX-License-Identifier: Apache-2.0
#include "harness/plot.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

#include "harness/table.hpp"

namespace topksoftmax::bench {
namespace {

// The layout, in the SVG's own units.
constexpr double kWidth = 960;
constexpr double kHeight = 520;
constexpr double kLeft = 64;
constexpr double kTop = 24;
constexpr double kRight = 700;  // the legend stands to the right of it
constexpr double kBottom = 462;
constexpr double kLegendStep = 21;

/// Errors below this are shown as none.
constexpr double kSmallestError = 2e-4;

/// Colours on light and on dark ground, told apart also by those who see few of them; markers differ as well.
struct Style {
  const char* light;
  const char* dark;
};
constexpr std::array<Style, 11> kStyles = {{{"#0067a8", "#5cb8f0"},
                                            {"#c94a00", "#ff9955"},
                                            {"#00805d", "#41d8a6"},
                                            {"#a3317d", "#f08bcb"},
                                            {"#8a6a00", "#e6c34a"},
                                            {"#b3202c", "#ff8080"},
                                            {"#0d7480", "#55d3dd"},
                                            {"#5a6e0c", "#b9d24f"},
                                            {"#6346b8", "#b7a1ff"},
                                            {"#80502a", "#d8a77d"},
                                            {"#59626c", "#aab4bf"}}};
constexpr std::size_t kMarkers = 7;

std::string number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

std::string marker(std::size_t style, double x, double y) {
  const auto polygon = [&](std::initializer_list<std::pair<double, double>> corners) {
    std::string points;
    for (const auto& [dx, dy] : corners) points += number(x + dx) + "," + number(y + dy) + " ";
    points.pop_back();
    return "<polygon points=\"" + points + "\"/>";
  };
  switch (style % kMarkers) {
    case 0:
      return "<circle cx=\"" + number(x) + "\" cy=\"" + number(y) + "\" r=\"4.2\"/>";
    case 1:
      return polygon({{-4, -4}, {4, -4}, {4, 4}, {-4, 4}});
    case 2:
      return polygon({{0, -5.2}, {5, 4}, {-5, 4}});
    case 3:
      return polygon({{0, -5.6}, {5.6, 0}, {0, 5.6}, {-5.6, 0}});
    case 4:
      return polygon({{-5, -4}, {5, -4}, {0, 5.2}});
    case 5:
      return polygon({{-1.6, -5},
                      {1.6, -5},
                      {1.6, -1.6},
                      {5, -1.6},
                      {5, 1.6},
                      {1.6, 1.6},
                      {1.6, 5},
                      {-1.6, 5},
                      {-1.6, 1.6},
                      {-5, 1.6},
                      {-5, -1.6},
                      {-1.6, -1.6}});
    default:
      return polygon({{-5, 0}, {-2.5, -4.6}, {2.5, -4.6}, {5, 0}, {2.5, 4.6}, {-2.5, 4.6}});
  }
}

std::string line(const char* css, double x1, double y1, double x2, double y2) {
  return std::string("<line class=\"") + css + "\" x1=\"" + number(x1) + "\" y1=\"" + number(y1) +
         "\" x2=\"" + number(x2) + "\" y2=\"" + number(y2) + "\"/>";
}

std::string text(const char* css, double x, double y, const std::string& content) {
  return std::string("<text class=\"") + css + "\" x=\"" + number(x) + "\" y=\"" + number(y) + "\">" +
         escape_html(content) + "</text>";
}

/// Positions in the SVG.
struct Frame {
  const Axis& x_axis;
  const Axis& y_axis;
  double x(double value) const { return kLeft + (kRight - kLeft) * x_axis.position(value); }
  double y(double value) const { return kBottom - (kBottom - kTop) * y_axis.position(value); }
};

std::string grid(const Frame& frame) {
  std::string svg;
  for (const Tick& tick : frame.x_axis.ticks) {
    svg += line("grid", frame.x(tick.value), kTop, frame.x(tick.value), kBottom);
    svg += text("x-tick", frame.x(tick.value), kBottom + 18, tick.label);
  }
  for (const Tick& tick : frame.y_axis.ticks) {
    svg += line("grid", kLeft, frame.y(tick.value), kRight, frame.y(tick.value));
    svg += text("y-tick", kLeft - 8, frame.y(tick.value) + 4, tick.label);
  }
  svg += text("x-title", (kLeft + kRight) / 2, kBottom + 42, frame.x_axis.title);
  svg += "<text class=\"y-title\" transform=\"translate(16 " + number((kTop + kBottom) / 2) +
         ") rotate(-90)\">" + escape_html(frame.y_axis.title) + "</text>";
  return svg;
}

std::string draw(const PlotCurve& curve, const Frame& frame) {
  std::string path;
  std::string markers;
  std::string dots;
  for (const PlotPoint& point : curve.points) {
    const double x = frame.x(point.x);
    const double y = frame.y(point.y);
    const std::string tooltip = "<title>" + escape_html(point.tooltip) + "</title>";
    if (point.on_curve) {
      path += number(x) + "," + number(y) + " ";
      markers += "<g>" + tooltip + marker(curve.style, x, y) + "</g>";
    } else {
      dots += "<circle class=\"dot\" cx=\"" + number(x) + "\" cy=\"" + number(y) + "\" r=\"2\">" + tooltip +
              "</circle>";
    }
  }
  if (!path.empty()) path.pop_back();
  return "<g class=\"s" + std::to_string(curve.style % kStyles.size()) + "\">" + dots +
         "<polyline class=\"curve\" points=\"" + path + "\"/>" + markers + "</g>";
}

std::string legend(const std::vector<PlotCurve>& curves) {
  std::string svg;
  double y = kTop + 8;
  for (const PlotCurve& curve : curves) {
    svg += "<g class=\"s" + std::to_string(curve.style % kStyles.size()) + "\">" +
           line("curve", kRight + 26, y, kRight + 54, y) + marker(curve.style, kRight + 40, y) + "</g>" +
           text("legend", kRight + 62, y + 4, curve.name);
    y += kLegendStep;
  }
  return svg;
}

}  // namespace

double Axis::position(double value) const {
  const double span = scale(high) - scale(low);
  return std::clamp((scale(value) - scale(low)) / span, 0.0, 1.0);
}

Axis log_axis(std::string title, const std::vector<double>& values) {
  Axis axis{.title = std::move(title),
            .low = 1.0,
            .high = 1.0,
            .scale = [](double v) { return std::log(v); },
            .ticks = {}};
  if (!values.empty()) {
    axis.low = *std::min_element(values.begin(), values.end()) * 0.9;
    axis.high = *std::max_element(values.begin(), values.end()) * 1.1;
  }
  for (double decade = std::pow(10.0, std::floor(std::log10(axis.low))); decade <= axis.high;
       decade *= 10.0) {
    for (const double step : {1.0, 2.0, 5.0}) {
      const double value = decade * step;
      if (value < axis.low || value > axis.high) continue;
      std::array<char, 32> label{};
      std::snprintf(label.data(), label.size(), "%g", value);
      axis.ticks.push_back({.value = value, .label = label.data()});
    }
  }
  return axis;
}

Axis precision_axis(std::string title, const std::vector<double>& values) {
  Axis axis{.title = std::move(title),
            .low = 0.0,
            .high = 1.0,
            .scale = [](double p) { return -std::log(std::max(1.0 - p, kSmallestError)); },
            .ticks = {}};
  const std::array<std::pair<double, const char*>, 11> ticks = {{{0.0, "0"},
                                                                 {0.5, "0.5"},
                                                                 {0.8, "0.8"},
                                                                 {0.9, "0.9"},
                                                                 {0.95, "0.95"},
                                                                 {0.98, "0.98"},
                                                                 {0.99, "0.99"},
                                                                 {0.995, "0.995"},
                                                                 {0.998, "0.998"},
                                                                 {0.999, "0.999"},
                                                                 {1.0, "1"}}};
  const double lowest = values.empty() ? 0.0 : *std::min_element(values.begin(), values.end());
  for (const auto& [value, label] : ticks) {
    if (value <= std::min(lowest, 0.9)) axis.low = value;
  }
  for (const auto& [value, label] : ticks) {
    if (value >= axis.low) axis.ticks.push_back({.value = value, .label = label});
  }
  return axis;
}

std::string svg_plot(const Axis& x, const Axis& y, const std::vector<PlotCurve>& curves,
                     const std::vector<PlotGuide>& guides) {
  const Frame frame{.x_axis = x, .y_axis = y};
  const double height = std::max(kHeight, kTop + 8 + kLegendStep * static_cast<double>(curves.size()));
  std::string svg = "<svg class=\"plot\" viewBox=\"0 0 " + number(kWidth) + " " + number(height) +
                    "\" role=\"img\" aria-label=\"" + escape_html(y.title + " against " + x.title) + "\">\n";
  svg += grid(frame) + "\n";
  for (const PlotGuide& guide : guides) {
    svg += line("guide", frame.x(guide.x1), frame.y(guide.y1), frame.x(guide.x2), frame.y(guide.y2));
    svg += text("guide-label", frame.x(guide.x1) + 6, frame.y(guide.y1) - 6, guide.label) + "\n";
  }
  for (const PlotCurve& curve : curves) svg += draw(curve, frame) + "\n";
  return svg + legend(curves) + "\n</svg>\n";
}

std::string plot_css() {
  std::string css = R"(
svg.plot { width: 100%; height: auto; font: 13px/1.2 system-ui, sans-serif; overflow: visible; }
.plot .grid { stroke: var(--line); stroke-width: 1; }
.plot .guide { stroke: var(--text); stroke-width: 1; stroke-dasharray: 5 4; opacity: 0.6; }
.plot text { fill: var(--text); }
.plot .x-tick, .plot .x-title, .plot .y-title { text-anchor: middle; }
.plot .y-tick { text-anchor: end; }
.plot .x-tick, .plot .y-tick, .plot .guide-label { fill: var(--muted); font-size: 12px; }
.plot .x-title, .plot .y-title { font-weight: 600; }
.plot .curve { fill: none; stroke-width: 2; stroke-linejoin: round; }
.plot .dot { opacity: 0.4; }
.plot g > g:hover { stroke: var(--text); }
)";
  std::string light;
  std::string dark;
  for (std::size_t i = 0; i < kStyles.size(); ++i) {
    const std::string name = ".plot .s" + std::to_string(i);
    css += name + " { fill: var(--s" + std::to_string(i) + "); } " + name + " .curve { stroke: var(--s" +
           std::to_string(i) + "); fill: none; }\n";
    light += "--s" + std::to_string(i) + ":" + kStyles[i].light + ";";
    dark += "--s" + std::to_string(i) + ":" + kStyles[i].dark + ";";
  }
  return css + ":root {" + light + "}\n@media screen and (prefers-color-scheme: dark) { :root {" + dark +
         "} }\n";
}

std::string escape_html(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

}  // namespace topksoftmax::bench
