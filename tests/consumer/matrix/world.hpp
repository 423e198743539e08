// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

/// The answer to a question by float64 sums.
struct Truth {
  std::vector<std::int32_t> best;
  double log_z = 0.0;
};

/// A layer, contexts to learn from, and contexts to ask, on which every way of computing agrees.
///
/// Weights, biases and contexts are multiples of 1/64, so small that a logit's sum is exact in float32 in
/// whatever order, fused or not. Contexts belong to topics that lie far apart, and the best tokens of those
/// that are asked lie apart by 1/16 at least: what decompositions and training round otherwise with other
/// instructions moves none of them.
struct World {
  static constexpr std::size_t kVocab = 640;
  static constexpr std::size_t kDim = 40;
  static constexpr std::size_t kTopics = 8;
  static constexpr std::size_t kLearned = 400;
  static constexpr std::size_t kAsked = 16;
  static constexpr std::size_t kBest = 5;  ///< the k of questions

  std::vector<float> weights;  ///< [V×d]
  std::vector<float> biases;   ///< [V]
  std::vector<float> learned;  ///< contexts [kLearned×d]
  std::vector<float> asked;    ///< contexts [kAsked×d]
  std::vector<Truth> truths;   ///< of each that is asked

  World();
};
