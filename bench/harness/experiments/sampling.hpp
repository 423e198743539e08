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
#include "topksoftmax/decoding/sampling_options.hpp"

namespace topksoftmax::bench {

/// How tokens are drawn.
struct Drawing {
  SamplingOptions options;
  std::size_t allowed = 0;  ///< tokens that a mask allows, others after each of 64 contexts; 0: all
};

/// Drawing tokens with one backend.
struct SamplingRow {
  std::string backend;
  double us_per_token = 0.0;
  double speedup = 0.0;         ///< over the fastest backend that takes the logits of all tokens
  double scans_per_1000 = 0.0;  ///< tokens drawn that needed the logits of all tokens
  double trials_mean = 0.0;     ///< tokens scored beside the answers
  /// Of tokens, from what is drawn from all logits with the same seed: 0 but for bugs.
  double different_share = 0.0;
};

/// What was measured of drawing.
struct SamplingMeasurement {
  Drawing drawing;
  std::vector<SamplingRow> rows = {};
  std::vector<std::string> notes = {};  ///< what is to be known of the timing
  std::string reference = {};           ///< the 1.0 of the speedups
  double reference_us = 0.0;            ///< its time a token
  double read_gb_s = 0.0;               ///< the machine's limit for a buffer of the layer's size
  std::size_t contexts = 0;             ///< that were drawn after
  std::size_t threads = 1;              ///< that shared each draw, or the draws of a batch
  std::size_t batch = 1;                ///< contexts a draw_each; 1: single draws
};

/// Draws a token after `measure.timed` of the test contexts with each of the chosen backends, and with the
/// fused softmax if none of them takes all logits, in one run, slice by slice in turn, on `measure.threads`
/// threads that share each draw, or the draws of a batch; a single one is pinned. Throws Error where more
/// tokens are to be allowed than there are.
SamplingMeasurement measure_sampling(const Head& head, std::span<const Choice> choices,
                                     const Drawing& drawing, const MeasureOptions& measure,
                                     Progress& progress);

void print_sampling(const Machine& machine, const Head& head, const SamplingMeasurement& measurement,
                    std::ostream& out);

nlohmann::ordered_json sampling_to_json(const Machine& machine, const Head& head,
                                        const SamplingMeasurement& measurement);

}  // namespace topksoftmax::bench
