// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <nlohmann/json.hpp>

#include "harness/machine.hpp"
#include "harness/measurer.hpp"

namespace topksoftmax::bench {

/// Prints machine, head and reference in a few lines.
void print_heading(const Machine& machine, const Measurer& measurer, const Measurement& measurement,
                   std::ostream& out);

/// Prints a row a backend, columns aligned.
void print_rows(const Measurer& measurer, const Measurement& measurement, std::ostream& out);

/// What every JSON file of the harness begins with: the machine, with what it reads from a buffer of the
/// layer's size; and the head.
nlohmann::ordered_json to_json(const Machine& machine);
nlohmann::ordered_json to_json(const Machine& machine, double read_gb_s);
nlohmann::ordered_json to_json(const Head& head);

/// A measurement as JSON. Figures that a row has not (a log-probability error without probabilities, say) are
/// null.
nlohmann::ordered_json to_json(const Machine& machine, const Measurer& measurer,
                               const Measurement& measurement);

}  // namespace topksoftmax::bench
