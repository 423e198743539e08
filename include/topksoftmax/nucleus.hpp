// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "topksoftmax/config.hpp"
#include "topksoftmax/sampled_log_z.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The fewest of the most probable tokens that together have at least a share of the probability (Holtzman et
/// al. 2020, section 3): token i is one of them if those that rank before it, with a higher logit or the same
/// one and a lower id, have less than that.
struct Nucleus {
  double share = 0.9;        ///< in (0, 1)
  double temperature = 1.0;  ///< logits are divided by it: 1e-30 to 1e30
  /// A token is placed as with a log Z that is off by less than this, but for one seed in a thousand; 0: by
  /// proven bounds, or its place is left open.
  double error = 0.01;
  /// Of the rows that are drawn.
  std::uint64_t seed = 1;
};

/// Where a token lies.
struct NucleusPlace {
  bool open = false;    ///< whether bounds do not tell; nothing else here counts then
  bool inside = false;  ///< whether the nucleus has it
  /// log Σ exp(logit/temperature) over all tokens that are allowed, as far as it was needed: from a sample or
  /// all rows, or the middle of what bounds prove, where `error` is half of that and no row counts as read.
  SampledLogZ log_z = {};
};

}  // namespace TOPKSOFTMAX_NAMESPACE
