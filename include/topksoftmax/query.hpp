// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// A checked query, as backends are handed it. Its ids are numbers of the layer's rows, as those of answers
/// to it are, and V is how many there are: what they are to a model (MappedVocabulary) is not a backend's
/// concern.
struct Query {
  const float* h = nullptr;   ///< the context [d], finite
  std::size_t k = 1;          ///< tokens to return: at least 1, at most V and at most the tokens allowed
  kernels::LogitEdits edits;  ///< mask and biases
  std::size_t effort = 0;     ///< QueryOptions::effort
  bool probabilities = true;  ///< whether log_z is wanted
  double log_z_tolerance = std::numeric_limits<double>::infinity();  ///< QueryOptions::log_z_tolerance
  bool same_context = false;                                         ///< QueryOptions::same_context
  /// Whether too few candidates mean that every token is scored. False: whoever asks is content with the
  /// fewer than k tokens, perhaps none, that there are then.
  bool fall_back = true;
};

}  // namespace TOPKSOFTMAX_NAMESPACE
