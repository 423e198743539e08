// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/reports/plot.hpp"

namespace topksoftmax::bench {

/// What a file holds that --json has written.
struct MeasurementFile {
  std::string name;
  nlohmann::json measurement;
};

// Figures for papers and READMEs, from files that --json has written: runs of different heads in one figure.
// Each throws Error, which names the file, where one is not such a one, or where a value that is shown on a
// logarithmic axis is not above 0.

/// Precision at k against speedup, log–log: a panel for each head, with a curve for each system. Throws Error
/// too where a file was measured for other k.
std::vector<PlotPanel> precision_figure(const std::vector<MeasurementFile>& files, std::size_t k);

/// Microseconds a query against the number of tokens, log–log: a curve for each system, through heads that
/// differ in V. Of a system's settings the first counts. Throws Error too for runs that differ in more: in
/// the CPU, d, the type of the weights, threads or batch.
std::vector<PlotPanel> vocabulary_figure(const std::vector<MeasurementFile>& files);

}  // namespace topksoftmax::bench
