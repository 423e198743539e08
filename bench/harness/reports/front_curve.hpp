// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "harness/reports/plot.hpp"
#include "topksoftmax/evaluation/pareto_front.hpp"

namespace topksoftmax::bench {

/// A system's curve through those of its settings that none of its others beats, with the others as dots
/// beside it. place(i) is the point of settings[i].
PlotCurve front_curve(std::string name, std::size_t style, const std::vector<TradeOff>& settings,
                      const std::function<PlotPoint(std::size_t)>& place);

}  // namespace topksoftmax::bench
