// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "harness/machine.hpp"
#include "harness/measurer.hpp"

namespace topksoftmax::bench {

/// A measurement as one HTML page that needs no other file: the systems' standings, precision against speedup
/// with a curve a system (SVG), and every row. For a light or a dark screen, and for paper.
std::string to_html(const Machine& machine, const Measurer& measurer, const Measurement& measurement);

}  // namespace topksoftmax::bench
