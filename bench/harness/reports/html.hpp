// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "harness/measuring/machine.hpp"
#include "harness/measuring/measurer.hpp"

namespace topksoftmax::bench {

/// A measurement as one HTML page that needs no other file: the systems' standings, precision against speedup
/// with a curve for each system (SVG), every row, and the rows as CSV and LaTeX. For a light or a dark screen
/// of any width, and for paper. `command` is what measured it, as typed.
std::string to_html(const Machine& machine, const Measurer& measurer, const Measurement& measurement,
                    const std::string& command);

}  // namespace topksoftmax::bench
