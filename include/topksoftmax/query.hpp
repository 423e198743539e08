// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// A checked query, as backends get it. Its ids, and those of its answers, are numbers of the layer's rows,
/// of which there are V. What these rows are to a model (MappedVocabulary) is not a backend's concern.
struct Query {
  const float* h = nullptr;  ///< the context [d], finite
  std::size_t k = 1;         ///< tokens to return: at most V, and at least 1 but where no token is allowed: 0
  kernels::LogitEdits edits = {};  ///< mask and biases
  std::size_t effort = 0;          ///< QueryOptions::effort, or the usual one
  bool probabilities = true;       ///< whether log_z is wanted
  double log_z_tolerance = std::numeric_limits<double>::infinity();  ///< QueryOptions::log_z_tolerance
  bool same_context = false;                                         ///< QueryOptions::same_context
  /// Whether the mask forbids some tokens, but so few that each of them can be scored: few_forbidden().
  bool forbids_few = false;
  /// Whether too few candidates mean that every token is scored. False: the caller accepts fewer than k
  /// tokens, perhaps none.
  bool fall_back = true;
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Up to this many forbidden tokens are scored, to take them off what was learned of all tokens: the padding
/// of a vocabulary, and the few words that a text must not have.
inline std::size_t few_forbidden(std::size_t vocab) {
  return 16 + vocab / 512;
}

/// Up to this many allowed tokens are simply scored: no index is faster, and the answer is exact.
inline std::size_t few_allowed(std::size_t vocab) {
  return std::max<std::size_t>(64, vocab / 32);
}

/// Where the logits of all allowed tokens are wanted, the rows of up to this many are gathered, whatever the
/// batch: one that reads all rows once gains no more.
inline std::size_t gathered_allowed(std::size_t vocab) {
  return vocab / 8;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
