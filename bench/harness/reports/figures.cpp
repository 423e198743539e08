// SPDX-License-Identifier: Apache-2.0
#include "harness/reports/figures.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>

#include "harness/reports/front_curve.hpp"
#include "harness/text/printable.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/numeric/number_text.hpp"

namespace topksoftmax::bench {
namespace {

using nlohmann::json;

/// A style for each system, the same in every panel.
class Styles {
 public:
  std::size_t of(const std::string& system) {
    return styles_.try_emplace(system, styles_.size()).first->second;
  }

 private:
  std::map<std::string, std::size_t> styles_;
};

/// Calls read(file), whose failures are those of a file that is not a measurement.
template <class Read>
auto read_file(const MeasurementFile& file, const Read& read) {
  try {
    return read(file);
  } catch (const json::exception& error) {
    std::string reason = error.what();
    reason.erase(0, reason.find("] ") + 2);  // its number in the library that reads JSON
    throw Error(file.name + ": is not a measurement that measure --json has written: " + reason);
  }
}

/// A number of a measurement that a logarithmic axis shows. Throws Error where it is not above 0.
double positive(const MeasurementFile& file, const json& object, const char* key) {
  const double value = object.at(key).get<double>();
  if (value > 0.0) return value;  // and finite, as all numbers in JSON are
  throw Error(file.name + ": " + key + " is " + detail::number_text(value) + "; it must be above 0");
}

/// The k of a result, ascending: "1, 5 and 10".
std::string measured_ks(const json& precisions) {
  std::vector<std::string> ks;
  for (const auto& [k, precision] : precisions.items()) ks.push_back(printable(k));
  std::sort(ks.begin(), ks.end(), [](const std::string& a, const std::string& b) {
    return std::pair(a.size(), a) < std::pair(b.size(), b);
  });
  std::string text;
  for (std::size_t i = 0; i < ks.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == ks.size() ? " and " : ", ") + ks[i];
  }
  return text;
}

/// A result's P@k. Throws Error where it was not measured.
double precision_at(const MeasurementFile& file, const json& result, const std::string& k) {
  const json& precisions = result.at("p_at");
  if (precisions.is_object() && !precisions.contains(k)) {
    throw Error(file.name + ": was measured for k = " + measured_ks(precisions) + ", not " + k);
  }
  return precisions.at(k).get<double>();
}

/// The results of each system, in the order of the run.
std::vector<std::pair<std::string, std::vector<const json*>>> by_system(const json& measurement) {
  std::vector<std::pair<std::string, std::vector<const json*>>> systems;
  for (const json& result : measurement.at("results")) {
    const std::string name = printable(result.at("backend").get_ref<const std::string&>());
    const auto same = [&name](const auto& system) { return system.first == name; };
    auto found = std::find_if(systems.begin(), systems.end(), same);
    if (found == systems.end()) found = systems.insert(systems.end(), {name, {}});
    found->second.push_back(&result);
  }
  return systems;
}

std::string head_title(const MeasurementFile& file) {
  const json& head = file.measurement.at("head");
  positive(file, head, "vocab");
  return printable(head.at("name").get_ref<const std::string&>()) + ", " +
         std::to_string(head.at("vocab").get<std::size_t>()) + " × " +
         std::to_string(head.at("dim").get<std::size_t>());
}

PlotPanel precision_panel(const MeasurementFile& file, std::size_t k, Styles& styles) {
  const std::string at = std::to_string(k);
  std::vector<double> speedups = {1.0};
  std::vector<double> precisions;
  PlotPanel panel;
  for (const auto& [name, results] : by_system(file.measurement)) {
    std::vector<TradeOff> settings;
    for (const json* const result : results) {
      settings.push_back(
          {.precision = precision_at(file, *result, at), .speed = positive(file, *result, "speedup")});
      speedups.push_back(settings.back().speed);
      precisions.push_back(settings.back().precision);
    }
    PlotCurve curve = front_curve(name, styles.of(name), settings, [&settings](std::size_t i) {
      return PlotPoint{.x = settings[i].speed, .y = settings[i].precision, .tooltip = ""};
    });
    // An image cannot tell what a dot beside a curve is.
    std::erase_if(curve.points, [](const PlotPoint& point) { return !point.on_curve; });
    panel.curves.push_back(std::move(curve));
  }
  panel.title = head_title(file);
  panel.x = log_axis("times as fast as the fastest full softmax", speedups);
  panel.y = precision_axis("P@" + at, precisions);
  panel.guides = {{.x1 = 1.0, .y1 = panel.y.low, .x2 = 1.0, .y2 = panel.y.high, .label = ""}};
  return panel;
}

/// Throws Error where times of one run say nothing of the other's.
void check_comparable(const MeasurementFile& file, const MeasurementFile& with) {
  constexpr std::array<std::pair<const char*, const char*>, 5> kConditions = {
      {{"/machine/cpu", "the CPU"},
       {"/head/dim", "d"},
       {"/head/type", "the type of W"},
       {"/threads", "threads"},
       {"/batch", "batch"}}};
  for (const auto& [where, what] : kConditions) {
    const json& here = file.measurement.at(json::json_pointer(where));
    const json& there = with.measurement.at(json::json_pointer(where));
    if (here == there) continue;
    throw Error(file.name + ": " + what + " is " + here.dump() + ", that of " + with.name + " is " +
                there.dump() + "; only V may differ in this figure");
  }
}

}  // namespace

std::vector<PlotPanel> precision_figure(const std::vector<MeasurementFile>& files, std::size_t k) {
  Styles styles;
  const auto read = [&](const MeasurementFile& file) { return precision_panel(file, k, styles); };
  std::vector<PlotPanel> panels;
  for (const MeasurementFile& file : files) panels.push_back(read_file(file, read));
  return panels;
}

std::vector<PlotPanel> vocabulary_figure(const std::vector<MeasurementFile>& files) {
  Styles styles;
  std::map<std::string, std::map<double, double>> times;  // of each system, by V
  std::vector<double> sizes;
  std::vector<double> all;
  std::vector<std::string> order;
  const auto read = [&](const MeasurementFile& file) {
    check_comparable(file, files.front());
    sizes.push_back(positive(file, file.measurement.at("head"), "vocab"));
    for (const auto& [name, results] : by_system(file.measurement)) {
      if (times.find(name) == times.end()) order.push_back(name);
      all.push_back(positive(file, *results.front(), "us_per_query"));
      times[name][sizes.back()] = all.back();
    }
  };
  for (const MeasurementFile& file : files) read_file(file, read);
  PlotPanel panel;
  for (const std::string& name : order) {
    PlotCurve curve{.name = name, .style = styles.of(name), .points = {}};
    for (const auto& [vocab, time] : times[name])
      curve.points.push_back({.x = vocab, .y = time, .tooltip = ""});
    panel.curves.push_back(std::move(curve));
  }
  panel.x = log_axis("V, tokens", sizes);
  panel.y = log_axis("µs a query", all);
  return {std::move(panel)};
}

}  // namespace topksoftmax::bench
