// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <numeric>
#include <ostream>

#include "harness/experiments/ablation.hpp"
#include "harness/text/table.hpp"
#include "topksoftmax/error.hpp"

namespace topksoftmax::bench {
namespace {

/// The paper's vocabularies, as shares of its 10,000 tokens.
constexpr std::array<double, 6> kShares = {0.2, 0.4, 0.6, 0.8, 0.9, 1.0};

/// Its clusters, and the precision that each vocabulary's setting is to reach.
constexpr const char* kClusters = "200";
constexpr double kPrecisionAt1 = 0.99;

/// Budgets to try, until one reaches the precision.
constexpr std::array<std::size_t, 6> kBudgets = {5, 10, 20, 40, 80, 160};

}  // namespace

Head most_frequent_of(const Head& head, std::size_t vocab) {
  std::vector<std::size_t> tokens(head.layer.vocab());
  std::iota(tokens.begin(), tokens.end(), 0);
  std::stable_sort(tokens.begin(), tokens.end(),
                   [&](std::size_t a, std::size_t b) { return head.counts[a] > head.counts[b]; });
  tokens.resize(vocab);
  std::sort(tokens.begin(), tokens.end());

  const Eigen::VectorXf all_biases = head.layer.biases();
  RowMajorMatrix weights(static_cast<Eigen::Index>(vocab), static_cast<Eigen::Index>(head.layer.dim()));
  Eigen::VectorXf biases(static_cast<Eigen::Index>(vocab));
  std::vector<std::int64_t> counts(vocab);
  for (std::size_t i = 0; i < vocab; ++i) {
    const auto row = static_cast<Eigen::Index>(i);
    head.layer.copy_row(tokens[i], weights.row(row).data());
    biases[row] = all_biases[static_cast<Eigen::Index>(tokens[i])];
    counts[i] = head.counts[tokens[i]];
  }
  return {.file = head.file,
          .name = head.name,
          .layer = SoftmaxLayer::own(std::move(weights), std::move(biases)).with(head.layer.transform()),
          .train = head.train,
          .test = head.test,
          .counts = std::move(counts)};
}

void run_vocabulary_ablation(const AblationRequest& request, std::ostream& out) {
  if (request.head.counts.empty()) {
    throw Error(request.head.file +
                ": there are no counts; without them no token is more frequent than another");
  }
  Table table({"vocabulary", "budget", "µs/query", "full softmax µs", "speedup", "P@1", "P@5", "candidates"});
  for (const double share : kShares) {
    const Head head = most_frequent_of(
        request.head, static_cast<std::size_t>(share * static_cast<double>(request.head.layer.vocab())));
    const Measurer measurer(head, request.measure, request.progress);
    for (const std::size_t budget : kBudgets) {
      const std::vector<Contestant> contestants = {measurer.build(
          request.choice("l2s", {{"clusters", kClusters}, {"budget", std::to_string(budget)}}))};
      const Measurement measurement = measurer.measure(contestants);
      const Row& row = measurement.rows.front();
      if (row.precision_at(1) < kPrecisionAt1 && budget != kBudgets.back()) continue;
      table.add({std::to_string(head.layer.vocab()), std::to_string(budget),
                 three_digits(row.timing.seconds_per_item * 1e6),
                 three_digits(measurement.reference_timing.seconds_per_item * 1e6), three_digits(row.speedup),
                 fixed(row.precision_at(1), 4), fixed(row.precision_at(5), 4),
                 three_digits(row.precision.candidates_mean)});
      break;
    }
  }
  table.print(out);
}

}  // namespace topksoftmax::bench
