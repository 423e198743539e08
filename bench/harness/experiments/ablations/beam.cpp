// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <ostream>

#include "harness/experiments/ablation.hpp"
#include "harness/text/table.hpp"

namespace topksoftmax::bench {
namespace {

/// The paper's beams: contexts of a batch.
constexpr std::array<std::size_t, 4> kBeams = {12, 24, 36, 48};

}  // namespace

void run_beam_ablation(const AblationRequest& request, std::ostream& out) {
  Table table({"batch", "full softmax µs", "wta-lsh µs", "speedup", "P@1", "P@5", "candidates",
               "wta-lsh-each µs", "speedup", "P@1", "P@5", "candidates"});
  for (const std::size_t beam : kBeams) {
    MeasureOptions options = request.measure;
    options.batch = beam;
    const Measurer measurer(request.head, options, request.progress);
    const std::array<Contestant, 2> contestants = {measurer.build(request.choice("wta-lsh", {})),
                                                   measurer.build(request.choice("wta-lsh-each", {}))};
    const Measurement measurement = measurer.measure(contestants);
    std::vector<std::string> cells = {std::to_string(beam),
                                      three_digits(measurement.reference_timing.seconds_per_item * 1e6)};
    for (const Row& row : measurement.rows) {
      cells.insert(cells.end(), {three_digits(row.timing.seconds_per_item * 1e6), three_digits(row.speedup),
                                 fixed(row.precision_at(1), 4), fixed(row.precision_at(5), 4),
                                 three_digits(row.precision.candidates_mean)});
    }
    table.add(std::move(cells));
  }
  table.print(out);
}

}  // namespace topksoftmax::bench
