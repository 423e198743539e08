// SPDX-License-Identifier: Apache-2.0
#include "harness/reports/scoreboard.hpp"

#include <ostream>

#include "harness/text/table.hpp"

namespace topksoftmax::bench {

const std::array<Target, 3>& targets() {
  static const std::array<Target, 3> all = {{{.name = "P@1 ≥ 0.99", .p_at_1 = 0.99, .p_at_5 = 0.0},
                                             {.name = "P@5 ≥ 0.98", .p_at_1 = 0.0, .p_at_5 = 0.98},
                                             {.name = "both ≥ 0.99", .p_at_1 = 0.99, .p_at_5 = 0.99}}};
  return all;
}

std::vector<Standing> standings(const Measurement& measurement) {
  std::vector<Standing> all;
  for (const Row& row : measurement.rows) {
    if (all.empty() || all.back().backend != row.backend) all.push_back({.backend = row.backend});
    for (std::size_t t = 0; t < targets().size(); ++t) {
      const Row*& best = all.back().best[t];
      if (targets()[t].reached_by(row) && (best == nullptr || row.speedup > best->speedup)) best = &row;
    }
  }
  return all;
}

void print_scoreboard(const Measurement& measurement, std::ostream& out) {
  for (std::size_t t = 0; t < targets().size(); ++t) {
    Table table({"best at " + targets()[t].name, "speedup", "µs/query", "P@1", "P@5", "candidates",
                 "KB/query", "index MB", "settings"});
    for (const Standing& standing : standings(measurement)) {
      const Row* const row = standing.best[t];
      if (row == nullptr) {
        table.add({standing.backend, "-", "-", "-", "-", "-", "-", "-", ""});
        continue;
      }
      table.add({standing.backend, three_digits(row->speedup),
                 three_digits(row->timing.seconds_per_item * 1e6), fixed(row->precision_at(1), 4),
                 fixed(row->precision_at(5), 4), three_digits(row->precision.candidates_mean),
                 three_digits(row->precision.bytes_read_mean * 1e-3),
                 fixed(static_cast<double>(row->index_bytes) * 1e-6, 2), row->settings});
    }
    out << (t == 0 ? "" : "\n");
    table.print(out);
  }
}

}  // namespace topksoftmax::bench
