// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// How well log Z is to be known from a sample of the rows; where these tell too little, all are read.
struct SampledLogZOptions {
  /// |log Z found − log Z| is below this but for one seed in a thousand or so: above 0.
  double error = 0.01;
  /// Logits are divided by it: 1e-30 to 1e30.
  double temperature = 1.0;
  /// Of the rows that are drawn.
  std::uint64_t seed = 1;
};

/// log Σ exp(logit/temperature) over all tokens that are allowed, from the rows that count most and a sample
/// of the others. Layers of fewer than 256 tokens are read whole.
struct SampledLogZ {
  /// The estimate, in nats.
  double log_z = 0.0;
  double error = 0.0;         ///< half of its interval of confidence at 99.9 %; 0: exact but for rounding
  std::size_t rows_read = 0;  ///< rows whose logits were computed
};

}  // namespace TOPKSOFTMAX_NAMESPACE
