// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "topksoftmax/contexts.hpp"
#include "topksoftmax/export.hpp"
#include "topksoftmax/training/candidate_sets.hpp"
#include "topksoftmax/training/knapsack.hpp"
#include "topksoftmax/training/progress.hpp"

namespace topksoftmax {

/// How L2S learns. The defaults are the paper's where it gives one.
struct L2SOptions {
  std::size_t clusters = 100;  ///< r, at least 1; the paper advises 100 or 200
  /// B, candidates a context meets in the mean, at least 1: the knob between speed and precision.
  double budget = 100.0;
  double lambda = 3e-4;      ///< λ of Eq. 6, above 0 and below 1
  double gamma = 10.0;       ///< γ of Eq. 8, 0 to 10⁶
  double temperature = 1.0;  ///< of the Gumbel softmax, 10⁻⁶ to 10⁶

  std::size_t rounds = 5;  ///< T of Algorithm 1; 0 keeps the k-means clusters (the paper's Table 5)
  std::size_t epochs = 2;  ///< passes over the contexts a round, at least 1
  std::size_t kmeans_iterations = 15;
  std::size_t batch_size = 512;  ///< contexts a step, at least 1
  /// Of GumbelTrainer, above 0 and at most 10⁶; falls linearly to a tenth over the training.
  double learning_rate = 0.05;
  /// How sharply the clusters divide the contexts before they learn: the mean of max_t P(t|h) (Eq. 3), above
  /// 0 and below 1. Scaling all v_t alike changes no prediction, only how soft that softmax is.
  double sharpness = 0.8;

  std::size_t label_count = 5;         ///< a context's labels y: its exact top tokens, at least 1
  std::size_t label_depth = 16;        ///< near misses count down to this rank, no less than label_count …
  double near_miss_value = 1.0;        ///< … as this share of a label, 0 (the paper's plain form) to 1 …
  double near_miss_temperature = 1.0;  ///< … times exp(−gap in logits / this), above 0 and at most 10⁶

  std::uint64_t seed = 1;
  TrainingProgress progress = {};
};

/// What training yields.
struct L2SModel {
  std::vector<float> v;  ///< cluster vectors [r×d]
  std::size_t clusters = 0;
  CandidateSets sets;
  /// Eq. 7 on the training contexts after k-means and after each round; the model is the best of them.
  std::vector<ScreeningLoss> history;
};

/// Algorithm 1 of L2S: spherical k-means, then `rounds` times {SGD on the clusters with the sets fixed;
/// knapsack for the sets with the clusters fixed}. Keeps the round with the lowest objective, so that
/// learning never ends worse than it began. Deterministic for a seed, for any number of threads. Throws Error
/// for unusable options or contexts.
TOPKSOFTMAX_EXPORT L2SModel train_l2s(const Contexts& contexts, const Labels& labels,
                                      const L2SOptions& options);

}  // namespace topksoftmax
