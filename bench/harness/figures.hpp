// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <vector>

#include "harness/plot.hpp"

namespace topksoftmax::bench {

// Figures for papers and READMEs, from files that --json has written: runs of different heads in one figure.
// Each throws Error where a file is not such a one.

/// Precision at k against speedup, log–log: a panel for each head, with a curve for each system.
std::vector<PlotPanel> precision_figure(const std::vector<nlohmann::json>& measurements, std::size_t k);

/// Microseconds a query against the number of tokens, log–log: a curve for each system, through heads that
/// differ in V. Of a system's settings the first counts.
std::vector<PlotPanel> vocabulary_figure(const std::vector<nlohmann::json>& measurements);

}  // namespace topksoftmax::bench
