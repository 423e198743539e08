// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/measuring/machine.hpp"
#include "harness/measuring/measurer.hpp"

namespace topksoftmax::bench {

/// What is to be known of a measurement besides its rows: its notes; which backends had one thread
/// where others had several; and whether the machine was restless.
std::vector<std::string> remarks(const Measurer& measurer, const Measurement& measurement);

/// The names of the table's columns, and below them the cells of a row: its backend first and notes to it, if
/// any, last.
std::vector<std::string> table_header(const Measurer& measurer, const Measurement& measurement);
std::vector<std::string> table_cells(const Measurer& measurer, const Measurement& measurement,
                                     const Row& row);

/// Prints machine, head and reference in a few lines, and the remarks.
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
