// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "harness/backends/choice.hpp"
#include "harness/heads/head.hpp"
#include "harness/measuring/machine.hpp"
#include "harness/measuring/measurer.hpp"
#include "harness/text/progress.hpp"

namespace topksoftmax::bench {

/// A backend over slices of the vocabulary; Certified is there once more without probabilities, where slices
/// tell each other of thresholds, and once where they do not. Times are microseconds a context, medians over
/// the rounds.
struct RanksRow {
  std::string backend;
  double one_us = 0.0;          ///< of the backend over the whole layer, on one rank
  double ranks_us = 0.0;        ///< of all ranks together
  double screens_us = 0.0;      ///< of these, what the slowest rank takes for its slice
  double collectives_us = 0.0;  ///< and in collectives, of the rank that waits least for others there
  double waiting_us = 0.0;      ///< how much longer the ranks are there on average, for the slowest one
  double calls = 0.0;           ///< collectives a context
  double bytes = 0.0;           ///< that a rank receives in them a context
  /// Of contexts, those that are answered with other tokens than by the whole layer: of backends that prove
  /// their answers 0 but for bugs.
  double different_share = 0.0;

  double speedup() const { return one_us / ranks_us; }
};

/// What was measured over ranks.
struct RanksMeasurement {
  std::size_t ranks = 1;
  std::size_t k = 1;
  std::size_t batch = 1;
  std::size_t contexts = 0;
  std::vector<RanksRow> rows = {};
  std::vector<std::string> notes = {};  ///< what is to be known of the timing
};

/// What a run over ranks has of MPI, which it begins and, where nothing has failed, ends. Throws UsageError
/// where the harness was built without MPI.
class Ranks {
 public:
  Ranks();
  ~Ranks();
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  /// Whether this is the rank that prints and writes.
  bool first() const { return rank_ == 0; }

  /// Builds each backend over slices of the head's layer and, on the first rank, over the whole of it, and
  /// measures them against each other on `measure.timed` of the test contexts, slice by slice in turn: where
  /// one rank answers, the others sleep. Collective; the first rank has the measurement.
  RanksMeasurement measure(const Head& head, std::span<const Choice> choices, const MeasureOptions& measure,
                           Progress& progress) const;

 private:
  int rank_ = 0;
  [[maybe_unused]] int exceptions_ = 0;  ///< on their way when it was made
};

void print_ranks(const Machine& machine, const Head& head, const RanksMeasurement& measurement,
                 std::ostream& out);

nlohmann::ordered_json ranks_to_json(const Machine& machine, const Head& head,
                                     const RanksMeasurement& measurement);

}  // namespace topksoftmax::bench
