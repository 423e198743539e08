// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "harness/backends/choice.hpp"
#include "harness/heads/head.hpp"
#include "harness/measuring/concentration.hpp"
#include "harness/text/progress.hpp"
#include "topksoftmax/evaluation/precision.hpp"
#include "topksoftmax/evaluation/timing.hpp"
#include "topksoftmax/top_k_softmax.hpp"

namespace topksoftmax::bench {

struct MeasureOptions {
  std::vector<std::size_t> ks = {1, 5};  ///< P@k is wanted for these; the largest is asked for
  std::size_t queries = 0;               ///< contexts that precision is measured on; 0: all
  std::size_t timed = 1000;              ///< how many of these are timed
  std::size_t rounds = 9;                ///< of the timing
  std::size_t threads = 1;  ///< a ThreadPool's, that share each query, or the contexts of a batch
  std::size_t batch = 1;    ///< contexts a query_batch; 1: single queries

  /// What is asked for.
  std::size_t largest_k() const { return *std::max_element(ks.begin(), ks.end()); }
};

/// A backend that was built, and how it is asked.
struct Contestant {
  std::shared_ptr<const BackendDescription> backend;
  Settings settings;
  std::shared_ptr<const TopKSoftmax> system;
  double build_seconds = 0.0;
  double build_bytes = 0.0;  ///< memory at the build's peak, index included; NaN: not known
  std::size_t effort = 0;
};

/// What was measured of a contestant.
struct Row {
  std::string backend;
  nlohmann::json params;
  std::string settings;  ///< what differs from the defaults, for people
  Timing timing;         ///< a context
  double speedup = 0.0;
  bool slower_than_fused = false;
  Precision precision;  ///< means of work are NaN where the backend does not tell what it does
  std::size_t index_bytes = 0;
  double build_seconds = 0.0;
  double build_bytes = 0.0;  ///< see Contestant
  double read_gb_s = 0.0;    ///< reached; NaN: not known
  /// Of the machine's threads, for a buffer of the bytes that a query reads; NaN: not known.
  double limit_gb_s = 0.0;

  /// P@k; P@V for k beyond V.
  double precision_at(std::size_t k) const { return precision.at[std::min(k, precision.at.size()) - 1]; }
};

/// Settings as the tables show them: name=value, separated by spaces.
std::string describe(const Settings& settings);

struct Measurement {
  std::vector<Row> rows;
  std::string reference;    ///< the fastest exact backend of the run, in whatever type it reads the weights
  Timing reference_timing;  ///< its own, a context
  double read_gb_s = 0.0;   ///< the limit of as many threads for a buffer of the layer's size
  std::vector<std::string> notes;  ///< how to read it, and what had to be left out, and why
};

/// Builds backends for a head and measures them against each other on its test contexts.
class Measurer {
 public:
  /// Finds the ground truth. Keeps references to the head and to the progress line.
  Measurer(const Head& head, const MeasureOptions& options, Progress& progress);

  const Head& head() const { return head_; }
  /// Of the head's contexts.
  const Concentration& concentration() const { return concentration_; }
  const MeasureOptions& options() const { return options_; }
  Progress& progress() const { return progress_; }
  /// Tokens that are asked for: the largest k.
  std::size_t k() const { return k_; }
  /// Contexts that precision is measured on.
  std::size_t queries() const { return static_cast<std::size_t>(test_.rows()); }

  /// Builds a backend (see build_backend) and measures how long that takes.
  Contestant build(const Choice& choice) const;

  /// Lets a contestant take part in every measurement from now on, and be the reference.
  void compare_with(const Contestant& contestant) { reference_ = contestant; }

  /// Measures the contestants in one run, slice by slice in turn. The fused softmax always takes part, so
  /// that there is an exact time to compare with; the reference is the fastest of the exact backends that do,
  /// where none is set.
  Measurement measure(std::span<const Contestant> contestants) const;

 private:
  Precision precision_of(const Contestant& contestant) const;

  /// Times of contestants, and of reading buffers.
  struct Times {
    std::vector<Timing> contestants;
    std::map<std::size_t, double> read_gb_s;  ///< by footprint in bytes
  };
  Times time(std::span<const Contestant> contestants, const std::set<std::size_t>& footprints) const;

  const Head& head_;
  Concentration concentration_;
  MeasureOptions options_;
  Progress& progress_;
  std::size_t k_;
  RowMajorMatrix test_;   ///< [queries × d]
  RowMajorMatrix timed_;  ///< [timed × d], runs of consecutive ones of them
  GroundTruth truth_;
  Contestant fused_;
  std::optional<Contestant> reference_;
};

}  // namespace topksoftmax::bench
