// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Proven bounds of the standard deviation of logits: the root of the mean of their squared distances from
/// their mean.
struct LogitDeviation {
  double low = 0.0;   ///< at least 0
  double high = 0.0;  ///< finite
};

}  // namespace TOPKSOFTMAX_NAMESPACE
