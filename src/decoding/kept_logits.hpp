// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "topksoftmax/decoding/distribution.hpp"
#include "topksoftmax/decoding/sampling.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {

/// The logits of all tokens and what the options leave of them. Nothing is sorted: what stays are the tokens
/// that rank before or are the last one that stays. Cost: a few passes over the logits.
class KeptLogits {
 public:
  /// Throws std::invalid_argument where no logit is above −∞ (forbidden). The logits must outlive this.
  KeptLogits(std::span<const float> logits, const SamplingOptions& options);

  /// The probability of a token.
  double operator[](TokenId id) const;

  /// All probabilities.
  Distribution distribution() const;

  /// The token at u of the cumulative distribution, the most probable first.
  SampledToken draw(double u) const;

 private:
  struct Weighted {
    ScoredToken token;
    double weight;  ///< exp((logit − the best one's)/temperature)
  };

  static bool goes_first(const Weighted& a, const Weighted& b) { return ranks_before(a.token, b.token); }

  /// Where the weights, the most probable token first, sum up to some mass.
  struct Crossing {
    ScoredToken token{};    ///< the first with which they reach it
    std::size_t count = 0;  ///< tokens up to this one
    double sum = 0.0;       ///< of their weights
  };

  bool stays(TokenId id) const;
  SampledToken sampled(TokenId id) const;
  double weight(float logit) const;
  std::vector<float> weights() const;
  /// At least the `wanted` best, in no order; before anything is cut.
  std::vector<Weighted> best(std::size_t wanted) const;
  Crossing cross(double target) const;
  void cut_to_best(std::size_t count);
  void cut_to_nucleus(double share);
  void cut_below(double weight);
  void keep(std::span<const Weighted> tokens);
  static std::size_t order_to_mass(std::span<Weighted> tokens, double target);

  std::span<const float> logits_;
  std::vector<float> tempered_;  ///< (logit − best)/temperature; empty where the temperature is 1
  double temperature_;
  std::size_t count_ = 0;  ///< tokens that stay
  double sum_ = 0.0;       ///< of their weights
  float best_ = 0.0F;
  ScoredToken last_;  ///< the last that stays
};

}  // namespace topksoftmax
