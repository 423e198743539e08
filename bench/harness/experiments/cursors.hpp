// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "harness/backends/choice.hpp"
#include "harness/heads/head.hpp"
#include "harness/measuring/machine.hpp"
#include "harness/measuring/measurer.hpp"
#include "harness/text/progress.hpp"

namespace topksoftmax::bench {

/// So many next best tokens of one backend, on demand and at once.
struct CursorRow {
  std::string backend;
  std::size_t tokens = 0;
  double us_query = 0.0;         ///< of a query for as many
  double us_cursor = 0.0;        ///< of a cursor that was started again
  double different_share = 0.0;  ///< of contexts after which the cursor gave other tokens than the query
};

/// What was measured of cursors.
struct CursorMeasurement {
  std::vector<CursorRow> rows;
  double read_gb_s = 0.0;               ///< the machine's limit for a buffer of the layer's size
  std::size_t contexts = 0;             ///< that were timed
  std::vector<std::string> notes = {};  ///< what is to be known of the timing
};

/// Takes `tokens` next best tokens, for each of these numbers, after `measure.timed` of the test contexts
/// with each of the chosen backends, in one run, slice by slice in turn on one pinned thread. Throws Error
/// for more tokens than the layer has.
CursorMeasurement measure_cursors(const Head& head, std::span<const Choice> choices,
                                  std::span<const std::size_t> tokens, const MeasureOptions& measure,
                                  Progress& progress);

void print_cursors(const Machine& machine, const Head& head, const CursorMeasurement& measurement,
                   std::ostream& out);

nlohmann::ordered_json cursors_to_json(const Machine& machine, const Head& head,
                                       const CursorMeasurement& measurement);

}  // namespace topksoftmax::bench
