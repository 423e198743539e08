// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <ostream>

#include "harness/experiments/ablation.hpp"
#include "harness/text/table.hpp"

namespace topksoftmax::bench {
namespace {

/// T as shares of the vocabulary.
constexpr std::array<double, 7> kShares = {0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4};

/// The paper's beam.
constexpr std::size_t kBeam = 12;

}  // namespace

void run_top_frequent_ablation(const AblationRequest& request, std::ostream& out) {
  MeasureOptions options = request.measure;
  options.batch = kBeam;
  const Measurer measurer(request.head, options, request.progress);
  std::vector<Contestant> contestants;
  for (const double share : kShares) {
    const auto tokens = static_cast<std::size_t>(share * static_cast<double>(request.head.layer.vocab()));
    contestants.push_back(
        measurer.build(request.choice("wta-lsh", {{"top_frequent", std::to_string(tokens)}})));
  }
  const Measurement measurement = measurer.measure(contestants);
  Table table({"T", "µs/query", "speedup", "P@1", "P@5", "candidates"});
  for (const Row& row : measurement.rows) {
    table.add({row.params.at("top_frequent").dump(), three_digits(row.timing.seconds_per_item * 1e6),
               three_digits(row.speedup), fixed(row.precision_at(1), 4), fixed(row.precision_at(5), 4),
               three_digits(row.precision.candidates_mean)});
  }
  table.print(out);
}

}  // namespace topksoftmax::bench
