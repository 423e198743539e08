// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

#include "topksoftmax/decoding/sampling_options.hpp"

namespace topksoftmax::testing {

/// Probabilities by token, in plain loops over tokens sorted by their logits.
class Expected {
 public:
  explicit Expected(const std::vector<double>& logits) : logits_(logits), kept_(logits.size(), true) {
    order_.resize(logits.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
    for (std::size_t i = 0; i < kept_.size(); ++i) kept_[i] = logits[i] != -HUGE_VAL;
  }

  std::vector<double> probabilities() const {
    std::vector<double> p(logits_.size(), 0.0);
    const double best =
        logits_[*std::find_if(order_.begin(), order_.end(), [&](std::size_t i) { return kept_[i]; })];
    for (std::size_t i = 0; i < p.size(); ++i) {
      if (kept_[i]) p[i] = std::exp((logits_[i] - best) / temperature_);
    }
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& x : p) x /= sum;
    return p;
  }

  void apply(SamplingStep step, const SamplingOptions& options, bool excludes) {
    if (step == SamplingStep::temperature) temperature_ = options.temperature;
    const std::vector<double> p = probabilities();
    const double largest = *std::max_element(p.begin(), p.end());
    std::vector<std::size_t> left;  // the most probable first
    for (const std::size_t i : order_) {
      if (kept_[i]) left.push_back(i);
    }
    const auto leave_out = [&](auto&& whether) {
      for (const std::size_t i : left) kept_[i] = !whether(i);
    };
    if (step == SamplingStep::top_k && options.top_k != 0) {
      for (std::size_t i = options.top_k; i < left.size(); ++i) kept_[left[i]] = false;
    }
    if (step == SamplingStep::top_p && options.top_p < 1.0) {
      double before = 0.0;
      for (const std::size_t i : left) {
        kept_[i] = before < options.top_p;
        before += p[i];
      }
    }
    if (step == SamplingStep::min_p) leave_out([&](std::size_t i) { return p[i] < options.min_p * largest; });
    if (step == SamplingStep::typical_p && options.typical_p < 1.0) {
      double entropy = 0.0;
      for (const std::size_t i : left) entropy -= p[i] > 0.0 ? p[i] * std::log(p[i]) : 0.0;
      const auto distance = [&](std::size_t i) { return std::abs(-std::log(p[i]) - entropy); };
      std::vector<std::size_t> typical = left;
      std::stable_sort(typical.begin(), typical.end(),
                       [&](std::size_t a, std::size_t b) { return distance(a) < distance(b); });
      double sum = 0.0;
      std::size_t last = 0;
      for (; last < typical.size(); ++last) {
        sum += p[typical[last]];
        if (sum >= options.typical_p) break;
      }
      const double farthest = distance(typical[std::min(last, typical.size() - 1)]);
      leave_out([&](std::size_t i) { return distance(i) > farthest; });
    }
    if (step == SamplingStep::top_n_sigma && options.top_n_sigma > 0.0) {
      double mean = 0.0;
      for (const std::size_t i : left) mean += logits_[i] / static_cast<double>(left.size());
      double variance = 0.0;
      for (const std::size_t i : left)
        variance += (logits_[i] - mean) * (logits_[i] - mean) / static_cast<double>(left.size());
      const double lowest = logits_[left[0]] - options.top_n_sigma * std::sqrt(variance);
      leave_out([&](std::size_t i) { return logits_[i] < lowest; });
    }
    if (step == SamplingStep::xtc && excludes) {
      for (std::size_t i = 0; i + 1 < left.size() && p[left[i + 1]] >= options.xtc_threshold; ++i)
        kept_[left[i]] = false;
    }
  }

 private:
  std::vector<double> logits_;
  std::vector<std::size_t> order_;
  std::vector<bool> kept_;
  double temperature_ = 1.0;
};

/// What should be drawn from.
inline std::vector<double> expected_distribution(const std::vector<double>& logits,
                                                 const SamplingOptions& options) {
  const auto of = [&](bool excludes) {
    Expected expected(logits);
    for (const SamplingStep step : options.order.steps) expected.apply(step, options, excludes);
    return expected.probabilities();
  };
  std::vector<double> p = of(false);
  const std::vector<double> with_xtc = of(true);
  for (std::size_t i = 0; i < p.size(); ++i)
    p[i] = options.xtc_probability * with_xtc[i] + (1.0 - options.xtc_probability) * p[i];
  return p;
}

}  // namespace topksoftmax::testing
