// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <ostream>

#include "harness/experiments/ablation.hpp"
#include "harness/text/table.hpp"

namespace topksoftmax::bench {
namespace {

/// The paper's ef_search and K.
constexpr std::array<std::size_t, 4> kEfSearch = {20, 50, 100, 200};
constexpr std::array<std::size_t, 4> kKs = {1, 2, 5, 10};

/// Distances that a query takes on average: of the graph's search, and of all rows where these are scanned.
double distances(const Row& row, std::size_t vocab) {
  return row.precision.screened_mean + row.precision.fell_back_rate * static_cast<double>(vocab);
}

}  // namespace

void run_k_ablation(const AblationRequest& request, std::ostream& out) {
  MeasureOptions options = request.measure;
  options.ks.assign(kKs.begin(), kKs.end());
  const Measurer measurer(request.head, options, request.progress);
  std::vector<Contestant> contestants = {measurer.build(request.choice("fgd", {}))};
  contestants.resize(kEfSearch.size(), contestants.front());
  for (std::size_t i = 0; i < kEfSearch.size(); ++i) {
    contestants[i].settings["ef_search"] = std::to_string(kEfSearch[i]);
    contestants[i].effort = kEfSearch[i];
  }
  const Measurement measurement = measurer.measure(contestants);
  Table table({"ef_search", "P@1", "P@2", "P@5", "P@10", "dist_cnt", "of", "µs/query", "speedup"});
  for (const Row& row : measurement.rows) {
    std::vector<std::string> cells = {row.params.at("ef_search").dump()};
    for (const std::size_t k : kKs) cells.push_back(fixed(row.precision_at(k), 4));
    cells.insert(cells.end(), {three_digits(distances(row, request.head.layer.vocab())),
                               std::to_string(request.head.layer.vocab()),
                               three_digits(row.timing.seconds_per_item * 1e6), three_digits(row.speedup)});
    table.add(std::move(cells));
  }
  table.print(out);
}

}  // namespace topksoftmax::bench
