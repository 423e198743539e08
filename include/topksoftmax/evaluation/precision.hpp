// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "topksoftmax/export.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {

/// What a backend's answers are held against: the exact top-k of some contexts, and for some of these the
/// exact log Z.
struct GroundTruth {
  std::size_t contexts = 0;  ///< N
  std::size_t k = 0;         ///< tokens a context, at most V

  std::vector<TokenId> ids;  ///< [N×k], the exact top-k of each context, best first

  std::vector<std::size_t> references;  ///< [R], the contexts whose log Z is known, ascending
  std::vector<double> log_z;            ///< [R], in float64 from float64 logits

  /// The exact top-k of context i.
  std::span<const TokenId> top(std::size_t i) const { return std::span(ids).subspan(i * k, k); }
};

/// Asks `Exact` for the min(k, V) best tokens of each of the contexts [N×d], and computes log Z in float64
/// for `references` of them (at most N), evenly spaced. Cost: N·V·d multiply-adds in float32 and
/// references·V·d in float64, on every thread that OpenMP offers. Throws std::invalid_argument as a query
/// does.
TOPKSOFTMAX_EXPORT GroundTruth find_ground_truth(const SoftmaxLayer& layer, const float* contexts,
                                                 std::size_t count, std::size_t dim, std::size_t stride,
                                                 std::size_t k, std::size_t references);

inline GroundTruth find_ground_truth(const SoftmaxLayer& layer, const ConstRows& contexts, std::size_t k,
                                     std::size_t references = 1000) {
  return find_ground_truth(layer, contexts.data(), static_cast<std::size_t>(contexts.rows()),
                           static_cast<std::size_t>(contexts.cols()),
                           static_cast<std::size_t>(contexts.outerStride()), k, references);
}

/// A backend's answers to contexts [N×d], asked `batch` at a time (the last batch may be smaller), each batch
/// on one thread, all batches on every thread that OpenMP offers.
TOPKSOFTMAX_EXPORT std::vector<TopK> answer_contexts(const TopKSoftmax& backend, const float* contexts,
                                                     std::size_t count, std::size_t dim, std::size_t stride,
                                                     const QueryOptions& options, std::size_t batch);

inline std::vector<TopK> answer_contexts(const TopKSoftmax& backend, const ConstRows& contexts,
                                         const QueryOptions& options, std::size_t batch = 1) {
  return answer_contexts(backend, contexts.data(), static_cast<std::size_t>(contexts.rows()),
                         static_cast<std::size_t>(contexts.cols()),
                         static_cast<std::size_t>(contexts.outerStride()), options, batch);
}

/// How good a backend's answers are, and what work they took.
struct Precision {
  /// P@1 … P@k: P@j = |A_j ∩ S_j| / j, the mean over the contexts, A_j being the first j tokens answered and
  /// S_j the exact j best.
  std::vector<double> at;

  double certified_rate = 0.0;   ///< share of the answers that are certified
  double fell_back_rate = 0.0;   ///< share of the answers for which the whole vocabulary was scanned
  double repaired_rate = 0.0;    ///< share of the answers that Certify had to repair
  double bytes_read_mean = 0.0;  ///< QueryWork::bytes_read
  double screened_mean = 0.0;    ///< QueryWork::screened
  double candidates_mean = 0.0;  ///< QueryWork::candidates

  /// The largest difference between a returned token's log_prob and the float64 one under the full softmax,
  /// over the ground truth's references; NaN without probabilities.
  double max_log_prob_error = std::numeric_limits<double>::quiet_NaN();

  /// The mean of log_z_high − log_z_low over the answers with Normalizer::interval; NaN if there are none.
  double log_z_width_mean = std::numeric_limits<double>::quiet_NaN();
};

/// Compares answers to contexts [N×d] with their ground truth. Cost: N·k·log k, and a product of d values for
/// each token answered to a reference. Throws std::invalid_argument where their numbers differ.
TOPKSOFTMAX_EXPORT Precision measure_precision(const SoftmaxLayer& layer, const float* contexts,
                                               std::size_t count, std::size_t stride,
                                               const GroundTruth& truth, std::span<const TopK> answers);

inline Precision measure_precision(const SoftmaxLayer& layer, const ConstRows& contexts,
                                   const GroundTruth& truth, std::span<const TopK> answers) {
  return measure_precision(layer, contexts.data(), static_cast<std::size_t>(contexts.rows()),
                           static_cast<std::size_t>(contexts.outerStride()), truth, answers);
}

}  // namespace topksoftmax
