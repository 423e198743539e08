// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <ostream>

#include "harness/experiments/ablation.hpp"
#include "harness/text/table.hpp"

namespace topksoftmax::bench {
namespace {

/// The paper's numbers of clusters.
constexpr std::array<std::size_t, 4> kClusters = {50, 100, 200, 250};

/// Clusters and candidates that a query scores in all: what the budget leaves after the clusters. The paper
/// varies the budget so that the times are about the same.
constexpr std::size_t kScored = 300;

}  // namespace

void run_clusters_ablation(const AblationRequest& request, std::ostream& out) {
  const Measurer measurer(request.head, request.measure, request.progress);
  std::vector<Contestant> contestants;
  for (const std::size_t clusters : kClusters) {
    contestants.push_back(measurer.build(request.choice(
        "l2s", {{"clusters", std::to_string(clusters)}, {"budget", std::to_string(kScored - clusters)}})));
  }
  const Measurement measurement = measurer.measure(contestants);
  Table table({"clusters", "budget", "µs/query", "speedup", "P@1", "P@5", "candidates", "build s"});
  for (std::size_t i = 0; i < measurement.rows.size(); ++i) {
    const Row& row = measurement.rows[i];
    table.add({row.params.at("clusters").dump(), three_digits(row.params.at("budget").get<double>()),
               three_digits(row.timing.seconds_per_item * 1e6), three_digits(row.speedup),
               fixed(row.precision_at(1), 4), fixed(row.precision_at(5), 4),
               three_digits(row.precision.candidates_mean), fixed(row.build_seconds, 1)});
  }
  table.print(out);
}

}  // namespace topksoftmax::bench
