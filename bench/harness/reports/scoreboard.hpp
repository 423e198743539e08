// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <iosfwd>
#include <string>
#include <vector>

#include "harness/measuring/measurer.hpp"

namespace topksoftmax::bench {

/// Precisions that a system must reach to be compared by its speed.
struct Target {
  std::string name;
  double p_at_1;
  double p_at_5;

  bool reached_by(const Row& row) const {
    return row.precision_at(1) >= p_at_1 && row.precision_at(5) >= p_at_5;
  }
};

/// What the board compares by.
const std::array<Target, 3>& targets();

/// A system's fastest rows at each of the targets() (null: none reaches it).
struct Standing {
  std::string backend;
  std::array<const Row*, 3> best = {};
};

/// The standing of every system of a measurement, in its order. Points into the measurement.
std::vector<Standing> standings(const Measurement& measurement);

/// Prints the standings as the papers' tables compare systems: best speedup, its precisions and its settings.
void print_scoreboard(const Measurement& measurement, std::ostream& out);

}  // namespace topksoftmax::bench
