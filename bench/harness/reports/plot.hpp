// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace topksoftmax::bench {

/// A line across a plot, with its label.
struct Tick {
  double value;
  std::string label;
};

/// One direction of a plot: which values it shows, and where.
struct Axis {
  std::string title;
  double low;                           ///< at the left, or at the bottom
  double high;                          ///< at the right, or at the top
  std::function<double(double)> scale;  ///< rising; positions are proportional to it
  std::vector<Tick> ticks;

  /// Where a value lies, 0 … 1 from low to high; outside values lie on the edge.
  double position(double value) const;
};

/// A logarithmic axis around these values above 0, with ticks at 1, 2 and 5 times the powers of ten.
Axis log_axis(std::string title, const std::vector<double>& values);

/// An axis for precisions around these values that shows how much is missing to 1: each step up divides the
/// errors, and 1 itself is the upper edge.
Axis precision_axis(std::string title, const std::vector<double>& values);

struct PlotPoint {
  double x;
  double y;
  std::string tooltip;   ///< may be empty
  bool on_curve = true;  ///< otherwise a faint dot beside it
};

/// The points of one system, those on the curve in its order.
struct PlotCurve {
  std::string name;
  std::size_t style;  ///< which colour and marker; both repeat where there are no more
  std::vector<PlotPoint> points;
};

/// A dashed line that a reader compares with.
struct PlotGuide {
  double x1, y1, x2, y2;
  std::string label;
};

/// One plot of a figure.
struct PlotPanel {
  std::string title;  ///< stands above it; may be empty
  Axis x;
  Axis y;
  std::vector<PlotCurve> curves;
  std::vector<PlotGuide> guides;
};

/// What a figure is drawn for.
enum class PlotShape {
  wide,   ///< a page: panels side by side, and a legend to their right
  narrow  ///< a phone: one below the other, and the legend below them
};

/// Panels with one legend, in which each name stands once, as an SVG element. Colours are CSS classes s0 …
/// s<n−1>, which plot_css() defines. Throws nothing.
std::string svg_plot(const std::vector<PlotPanel>& panels, PlotShape shape);

/// The style sheet of plots in a page, for light and dark screens and for paper.
std::string plot_css();

/// The ground that a figure of its own is drawn on.
enum class PlotTheme { light, dark };

/// The same figure as a file of its own, for wide pages, on one ground: an image that shows no tooltips.
std::string svg_file(const std::vector<PlotPanel>& panels, PlotTheme theme);

/// Text with what HTML takes for markup written out.
std::string escape_html(const std::string& text);

}  // namespace topksoftmax::bench
