// SPDX-License-Identifier: Apache-2.0
#include "harness/reports/plot.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

namespace topksoftmax::bench {
namespace {

/// Where panels and their legend lie, in the SVG's own units: about a pixel each.
struct Layout {
  double panel_width;  ///< of what lies between the axes
  double panel_height;
  std::size_t columns;         ///< panels side by side
  std::size_t legend_columns;  ///< below the panels; 0: a column to their right
};

constexpr double kLeft = 64;   // to the left of a panel: its ticks and its title
constexpr double kTop = 34;    // above it: its name
constexpr double kBelow = 56;  // below it
constexpr double kRight = 16;  // to the right of it
constexpr double kLegendStep = 19;
constexpr double kLegendWidth = 178;

Layout layout_of(PlotShape shape, std::size_t panels) {
  if (shape == PlotShape::narrow) {
    return {.panel_width = 312, .panel_height = 300, .columns = 1, .legend_columns = 2};
  }
  if (panels == 1) {
    return {.panel_width = 660, .panel_height = 430, .columns = 1, .legend_columns = 0};
  }
  return {.panel_width = 400, .panel_height = 400, .columns = 2, .legend_columns = 5};
}

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

/// Positions of a panel in the SVG.
struct Frame {
  const PlotPanel& panel;
  double left, top, right, bottom;

  double x(double value) const { return left + (right - left) * panel.x.position(value); }
  double y(double value) const { return bottom - (bottom - top) * panel.y.position(value); }
};

std::string grid(const Frame& frame) {
  std::string svg;
  const auto& [panel, left, top, right, bottom] = frame;
  // Labels of ticks must not touch.
  constexpr double kTickRoom = 30;
  double free = left - kTickRoom;
  for (const Tick& tick : panel.x.ticks) {
    const double x = frame.x(tick.value);
    svg += line("grid", x, top, x, bottom);
    if (x < free + kTickRoom) continue;
    svg += text("x-tick", x, bottom + 18, tick.label);
    free = x;
  }
  for (const Tick& tick : panel.y.ticks) {
    svg += line("grid", left, frame.y(tick.value), right, frame.y(tick.value));
    svg += text("y-tick", left - 8, frame.y(tick.value) + 4, tick.label);
  }
  svg += text("x-title", (left + right) / 2, bottom + 42, panel.x.title);
  svg += "<text class=\"y-title\" transform=\"translate(" + number(left - 48) + " " +
         number((top + bottom) / 2) + ") rotate(-90)\">" + escape_html(panel.y.title) + "</text>";
  if (!panel.title.empty()) svg += text("title", (left + right) / 2, top - 12, panel.title);
  return svg;
}

std::string draw(const PlotCurve& curve, const Frame& frame) {
  std::string path;
  std::string markers;
  std::string dots;
  for (const PlotPoint& point : curve.points) {
    const double x = frame.x(point.x);
    const double y = frame.y(point.y);
    const std::string tooltip =
        point.tooltip.empty() ? "" : "<title>" + escape_html(point.tooltip) + "</title>";
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

/// The curves of all panels, each name once.
std::vector<PlotCurve> named_once(const std::vector<PlotPanel>& panels) {
  std::vector<PlotCurve> once;
  for (const PlotPanel& panel : panels) {
    for (const PlotCurve& curve : panel.curves) {
      const auto same = [&curve](const PlotCurve& other) { return other.name == curve.name; };
      if (std::none_of(once.begin(), once.end(), same)) {
        once.push_back({.name = curve.name, .style = curve.style, .points = {}});
      }
    }
  }
  return once;
}

/// Curves' names in columns, from a point on.
std::string legend(const std::vector<PlotCurve>& curves, double left, double top, std::size_t columns,
                   double width) {
  const std::size_t in_column = (curves.size() + columns - 1) / columns;
  std::string svg;
  for (std::size_t i = 0; i < curves.size(); ++i) {
    const double x = left + static_cast<double>(i / in_column) * width;
    const double y = top + static_cast<double>(i % in_column) * kLegendStep;
    svg += "<g class=\"s" + std::to_string(curves[i].style % kStyles.size()) + "\">" +
           line("curve", x, y, x + 24, y) + marker(curves[i].style, x + 12, y) + "</g>" +
           text("legend", x + 31, y + 4, curves[i].name);
  }
  return svg;
}

std::string draw(const Frame& frame) {
  const PlotPanel& panel = frame.panel;
  std::string svg = grid(frame) + "\n";
  for (const PlotGuide& guide : panel.guides) {
    svg += line("guide", frame.x(guide.x1), frame.y(guide.y1), frame.x(guide.x2), frame.y(guide.y2));
    svg += text("guide-label", frame.x(guide.x1) + 6, frame.y(guide.y1) - 6, guide.label) + "\n";
  }
  for (const PlotCurve& curve : panel.curves) svg += draw(curve, frame) + "\n";
  return svg;
}

/// A figure with the attributes of its element, and what stands first in it.
std::string svg_figure(const std::vector<PlotPanel>& panels, const Layout& layout,
                       const std::string& attributes, const std::string& first) {
  const double column = kLeft + layout.panel_width + kRight;
  const double row = kTop + layout.panel_height + kBelow;
  const auto columns = static_cast<double>(layout.columns);
  const double rows = std::ceil(static_cast<double>(panels.size()) / columns);
  const std::vector<PlotCurve> curves = named_once(panels);
  std::string svg;
  std::string label;
  for (std::size_t i = 0; i < panels.size(); ++i) {
    const double left = static_cast<double>(i % layout.columns) * column + kLeft;
    const double top = static_cast<double>(i / layout.columns) * row + kTop;
    svg += draw({panels[i], left, top, left + layout.panel_width, top + layout.panel_height});
    label += (label.empty() ? "" : "; ") + panels[i].y.title + " against " + panels[i].x.title;
  }
  double width = columns * column;
  double height = rows * row;
  const auto many = static_cast<double>(curves.size());
  if (layout.legend_columns == 0) {
    svg += legend(curves, width, kTop + 8, 1, kLegendWidth);
    width += kLegendWidth;
    height = std::max(height, kTop + 16 + kLegendStep * many);
  } else {
    const auto legend_columns = static_cast<double>(layout.legend_columns);
    const double each = (width - kRight) / legend_columns;
    svg += legend(curves, kRight, height + 12, layout.legend_columns, each);
    height += 16 + kLegendStep * std::ceil(many / legend_columns);
  }
  return "<svg" + attributes + " viewBox=\"0 0 " + number(width) + " " + number(height) +
         "\" role=\"img\" aria-label=\"" + escape_html(label) + "\">\n" + first + svg + "\n</svg>\n";
}

std::string style_name(std::size_t style) {
  return "s" + std::to_string(style);
}

/// What a style sheet says whatever the colours, which `colour` names.
std::string plot_rules(const std::function<std::string(const std::string&)>& colour) {
  std::string css = ".plot .grid { stroke: " + colour("line") + R"(; stroke-width: 1; }
.plot .guide { stroke: )" +
                    colour("text") +
                    R"(; stroke-width: 1; stroke-dasharray: 5 4; opacity: 0.6; }
.plot text { fill: )" +
                    colour("text") + R"(; }
.plot .x-tick, .plot .x-title, .plot .y-title, .plot .title { text-anchor: middle; }
.plot .y-tick { text-anchor: end; }
.plot .x-tick, .plot .y-tick, .plot .guide-label { fill: )" +
                    colour("muted") + R"(; font-size: 12px; }
.plot .x-title, .plot .y-title { font-weight: 600; }
.plot .title { font-weight: 600; font-size: 15px; }
.plot .curve { fill: none; stroke-width: 2; stroke-linejoin: round; }
.plot .dot { opacity: 0.4; }
)";
  for (std::size_t i = 0; i < kStyles.size(); ++i) {
    const std::string name = ".plot ." + style_name(i);
    css += name + " { fill: " + colour(style_name(i)) + "; } " + name +
           " .curve { stroke: " + colour(style_name(i)) + "; fill: none; }\n";
  }
  return css;
}

/// A colour on a ground, by its name in style sheets.
std::string colour_on(PlotTheme theme, const std::string& name) {
  const bool light = theme == PlotTheme::light;
  if (name == "ground") return light ? "#ffffff" : "#0d1117";
  if (name == "text") return light ? "#1b1f24" : "#e4e8ec";
  if (name == "muted") return light ? "#5b6570" : "#98a3ae";
  if (name == "line") return light ? "#e3e7ec" : "#2b3138";
  const Style& style = kStyles[static_cast<std::size_t>(std::stoul(name.substr(1)))];
  return light ? style.light : style.dark;
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
    using Limits = std::numeric_limits<double>;
    axis.low = std::max(Limits::min(), *std::min_element(values.begin(), values.end()) * 0.9);
    axis.high = std::min(Limits::max(), *std::max_element(values.begin(), values.end()) * 1.1);
    axis.high = std::max(axis.low, axis.high);
  }
  const auto exponent_of = [](double value) { return static_cast<int>(std::floor(std::log10(value))); };
  const int last = exponent_of(axis.high);
  for (int exponent = exponent_of(axis.low); exponent <= last; ++exponent) {
    for (const double step : {1.0, 2.0, 5.0}) {
      const double value = step * std::pow(10.0, exponent);
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

std::string svg_plot(const std::vector<PlotPanel>& panels, PlotShape shape) {
  const std::string css = shape == PlotShape::wide ? "plot wide" : "plot narrow";
  return svg_figure(panels, layout_of(shape, panels.size()), " class=\"" + css + "\"", "");
}

std::string plot_css() {
  std::string css =
      "\nsvg.plot { width: 100%; height: auto; font: 13px/1.2 system-ui, sans-serif; overflow: visible; }\n" +
      plot_rules([](const std::string& name) { return "var(--" + name + ")"; }) +
      R"(.plot g > g:hover { stroke: var(--text); }
svg.narrow { display: none; max-width: 30rem; margin: 0 auto; }
@media screen and (max-width: 44rem) { svg.wide { display: none; } svg.narrow { display: block; } }
)";
  std::string light;
  std::string dark;
  for (std::size_t i = 0; i < kStyles.size(); ++i) {
    light += "--" + style_name(i) + ":" + kStyles[i].light + ";";
    dark += "--" + style_name(i) + ":" + kStyles[i].dark + ";";
  }
  return css + ":root {" + light + "}\n@media screen and (prefers-color-scheme: dark) { :root {" + dark +
         "} }\n";
}

std::string svg_file(const std::vector<PlotPanel>& panels, PlotTheme theme) {
  const std::string style =
      "<style>\nsvg { font: 13px/1.2 system-ui, -apple-system, \"Segoe UI\", \"Liberation Sans\", "
      "sans-serif; }\n" +
      plot_rules([theme](const std::string& name) { return colour_on(theme, name); }) +
      "</style>\n<rect width=\"100%\" height=\"100%\" fill=\"" + colour_on(theme, "ground") + "\"/>\n";
  return svg_figure(panels, layout_of(PlotShape::wide, panels.size()),
                    " xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\"", style);
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
