// SPDX-License-Identifier: Apache-2.0
#include "harness/reports/front_curve.hpp"

#include <algorithm>
#include <utility>

namespace topksoftmax::bench {

PlotCurve front_curve(std::string name, std::size_t style, const std::vector<TradeOff>& settings,
                      const std::function<PlotPoint(std::size_t)>& place) {
  PlotCurve curve{.name = std::move(name), .style = style, .points = {}};
  const std::vector<std::size_t> front = pareto_front(settings);
  for (std::size_t i = 0; i < settings.size(); ++i) {
    if (std::find(front.begin(), front.end(), i) != front.end()) continue;
    curve.points.push_back(place(i));
    curve.points.back().on_curve = false;
  }
  for (const std::size_t i : front) curve.points.push_back(place(i));
  return curve;
}

}  // namespace topksoftmax::bench
