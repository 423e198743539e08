// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "topksoftmax/contexts.hpp"
#include "topksoftmax/export.hpp"
#include "topksoftmax/training/candidate_sets.hpp"

namespace topksoftmax {

struct GumbelOptions {
  double lambda = 3e-4;          ///< λ of Eq. 6
  double gamma = 10.0;           ///< γ of Eq. 8
  double budget = 300.0;         ///< B of Eq. 8
  double temperature = 1.0;      ///< of the Gumbel softmax
  std::size_t batch_size = 512;  ///< contexts a step
  /// What a step changes a v_tj by at the most, about, relative to the root mean square of all v_tj at the
  /// beginning.
  double learning_rate = 0.05;
};

/// Stochastic gradient descent on the cluster vectors v_t with the straight-through Gumbel softmax (L2S §3,
/// Eqs. 3–5 and 8; Jang et al. 2017), in Adam's form.
///
/// With sets fixed, context i in cluster t costs
///   ℓ_it = (|y_i| − m_it) + λ(|c_t| − m_it),   m_it = |y_i ∩ c_t|, labels counted by their weights,
/// and the batch γ·max(0, L̄ − B), L̄ being the moving average of the sizes met. The forward pass draws the
/// one-hot p̄_i = one_hot(argmax_t a_it) with a_it = (v_t·h_i + g_it)/temperature, g_it ~ Gumbel(0, 1) (log
/// P(t|h) and v_t·h differ by what all t share). The loss is linear in p̄; the straight-through estimator
/// takes its derivative at p̄ for that at p_i = softmax(a_i), with a batch of n:
///   n·∂L/∂p_it = ℓ_it + γ·[L̄ > B]·|c_t|/n =: e_it,   n·∂L/∂a_it = p_it·(e_it − Σ_j p_ij e_ij),
///   ∂L/∂v_t = Σ_i ∂L/∂a_it · h_i / temperature.
/// Cost of an epoch: 4·N·r·d multiply-adds, 2·N·r exponentials and logarithms.
class TOPKSOFTMAX_EXPORT GumbelTrainer {
 public:
  /// v [clusters×dim] is where the descent begins.
  GumbelTrainer(std::vector<float> v, std::size_t clusters, const GumbelOptions& options, std::uint64_t seed);

  /// One pass over the contexts in a random order, for these sets. Deterministic for a seed, for any number
  /// of threads.
  void epoch(const Contexts& contexts, const Labels& labels, const CandidateSets& sets, double learning_rate);

  /// The cluster vectors [clusters×dim].
  const std::vector<float>& v() const { return v_; }

 private:
  void step(const std::vector<float>& gradient, double rate);

  std::vector<float> v_;
  std::size_t clusters_;
  GumbelOptions options_;
  std::mt19937_64 engine_;
  double unit_;                ///< root mean square of v at the beginning
  std::vector<float> mean_;    ///< Adam's moving averages of the gradient …
  std::vector<float> square_;  ///< … and of its square
  std::size_t steps_ = 0;
  double average_size_ = -1.0;  ///< L̄, negative until the first batch
};

/// The derivatives n·∂L/∂a_it [count×clusters] of a batch, for products v_t·h_i, costs e_it and noise g_it of
/// that shape, written over the products; drawn [count] becomes the clusters of p̄.
TOPKSOFTMAX_EXPORT void straight_through(std::size_t count, std::size_t clusters, const float* costs,
                                         const float* noise, double temperature, float* products,
                                         std::int32_t* drawn);

}  // namespace topksoftmax
