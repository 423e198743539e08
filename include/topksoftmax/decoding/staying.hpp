// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/decoding/kept_logits.hpp"
#include "topksoftmax/decoding/leader.hpp"
#include "topksoftmax/decoding/sampling_options.hpp"
#include "topksoftmax/decoding/weights.hpp"
#include "topksoftmax/logit_deviation.hpp"
#include "topksoftmax/numeric/tempered.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// An interval that a number lies in.
struct Bounds {
  double low;
  double high;
};

/// Bounds of log Σ exp((logit − the best one's)/temperature) over those of `total` tokens that are not in an
/// answer that is proven, by its log Z.
Bounds log_outside(const TopK& answer, std::size_t total, double temperature);

/// What is left of a distribution once its options were applied. Of the tokens that an answer lists it is
/// those from one place on.
struct Staying {
  bool decided = true;       ///< false: the answer does not tell, and nothing else here counts
  std::size_t first = 0;     ///< the listed tokens before this place do not stay …
  std::size_t sure = 0;      ///< … those before this one do …
  std::size_t possible = 0;  ///< … and those before this one may
  bool others = false;       ///< whether tokens that are not listed may stay …
  bool others_sure = false;  ///< … and whether all of them do whose logits are no lower than this
  double lowest = -std::numeric_limits<double>::infinity();
  Bounds mass{};  ///< of Σ exp((logit − that of the first that stays)/temperature) over all that stay
};

/// What is known of the tokens that an answer does not list, at a temperature: see log_outside().
using Outside = std::function<Bounds(double temperature)>;

/// Applies the options to an answer of at least one of `total` tokens, as far as it and what is known of the
/// others tell what they leave. `excludes`: whether XTC acts. `deviation`: of the logits of all.
Staying staying(const TopK& answer, std::size_t total, const SamplingOptions& options, bool excludes,
                const Outside& outside, const std::optional<LogitDeviation>& deviation);

/// Room for the rounding of exponentials and of an exact log Z.
inline constexpr double kLogitRounding = 1e-6;

/// Bounds of log Σ x^a over n ≥ 1 numbers 0 < x ≤ largest by bounds of log Σ x: powers above 1 shrink what is
/// below the largest, powers below 1 gain most where all are equal. In logarithms: x may be below all doubles
/// where x^a is not.
inline Bounds log_power_sum(Bounds log_sum, double log_n, double log_largest, double a) {
  const auto of_equals = [log_n, a](double log_of) { return log_n + a * (log_of - log_n); };
  const auto by_largest = [log_largest, a](double log_of) { return log_of + (a - 1.0) * log_largest; };
  const double all_largest = log_n + a * log_largest;
  const double low = a > 1.0 ? of_equals(log_sum.low) : by_largest(log_sum.low);
  const double high = a > 1.0 ? by_largest(log_sum.high) : of_equals(log_sum.high);
  return {std::min(all_largest, low), std::min(all_largest, high)};
}

/// How many leading weights it takes to reach `target`; weights.size() + 1 if even all do not.
inline std::size_t reach(std::span<const double> weights, double target) {
  double sum = 0.0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    sum += weights[i];
    if (sum >= target) return i + 1;
  }
  return weights.size() + 1;
}

inline Bounds log_outside(const TopK& answer, std::size_t total, double temperature) {
  const std::size_t others = total - answer.size();
  if (others == 0) return {kNoScore, kNoScore};
  const auto best = static_cast<double>(answer.logits.front());
  double inside = 0.0;
  for (const float logit : answer.logits) inside += std::exp(static_cast<double>(logit) - best);
  const double log_largest = static_cast<double>(answer.logits.back()) - best;
  const double log_others = std::log(static_cast<double>(others));
  const bool known = answer.normalizer == Normalizer::exact || answer.normalizer == Normalizer::interval;
  Bounds log_sum = {kNoScore, log_others + log_largest};
  if (known) {
    const double rounded = log_z_rounding(answer);
    const double low = std::exp(answer.log_z_low - best - rounded) * (1.0 - kLogitRounding) - inside;
    const double high = std::exp(answer.log_z_high - best + rounded) * (1.0 + kLogitRounding) - inside;
    // What is less than log Z is rounded by may be there all the same.
    const double least = kLogitRounding * inside;
    log_sum.low = std::log(std::max(0.0, low));
    log_sum.high = std::min(log_sum.high, std::log(std::max(least, high)));
  }
  const Bounds weights = log_power_sum(log_sum, log_others, log_largest, 1.0 / temperature);
  return {weights.low, std::max(weights.low, weights.high)};
}

/// The weights of logits.
inline std::vector<double> weights_of(std::span<const float> logits, double best, double temperature) {
  std::vector<double> weights;
  weights.reserve(logits.size());
  for (const float logit : logits) weights.push_back(std::exp(tempered(logit, best, temperature)));
  return weights;
}

/// Follows what the options leave of an answer's tokens, step by step.
class Narrowing {
 public:
  Narrowing(const TopK& answer, std::size_t total, const Outside& outside,
            const std::optional<LogitDeviation>& deviation)
      : answer_(answer), total_(total), outside_at_(outside), deviation_(deviation) {
    stay_.sure = stay_.possible = answer.size();
    stay_.others = stay_.others_sure = answer.size() < total;
    temper(1.0);
  }

  void temper(double temperature) {
    temperature_ = temperature;
    const float best = answer_.logits[stay_.first];
    weights_ = weights_of(answer_.logits, best, temperature);
    outside_.reset();
  }

  void cut(SamplingStep step, const SamplingOptions& options, bool excludes) {
    switch (step) {
      case SamplingStep::temperature:
        return;
      case SamplingStep::top_k:
        return cut_to_best(options.top_k);
      case SamplingStep::top_p:
        return cut_to_nucleus(options.top_p);
      case SamplingStep::min_p:
        return cut_by_share(options.min_p);
      case SamplingStep::xtc:
        if (excludes) cut_top(options.xtc_threshold);
        return;
      case SamplingStep::top_n_sigma:
        if (deviation_ && stay_.others && is_whole()) return cut_by_deviation(options.top_n_sigma);
        return cut_all(step, options);
      case SamplingStep::typical_p:
        return cut_all(step, options);
    }
  }

  const Staying& stay() const { return stay_; }

  /// Bounds of the weights of all that stay.
  Bounds mass() {
    const bool all_others = stay_.others_sure && stay_.lowest == -std::numeric_limits<double>::infinity();
    const double low = sum_of(listed(stay_.sure)) + (all_others ? outside().low : 0.0);
    const double high = sum_of(listed(stay_.possible)) + (stay_.others ? outside().high : 0.0);
    return {low, std::max(low, high)};  // more weights, added in another order, may sum up to less
  }

 private:
  std::span<const double> listed(std::size_t end) const {
    return std::span(weights_).subspan(stay_.first, end - stay_.first);
  }

  /// All that are not listed. Asked for when it counts: it may cost a sample.
  const Bounds& outside() {
    if (!outside_) {
      const double shift = tempered(answer_.logits.front(), answer_.logits[stay_.first], temperature_);
      const Bounds found = outside_at_(temperature_);
      outside_ = Bounds{std::exp(found.low + shift), std::exp(found.high + shift)};
    }
    return *outside_;
  }

  /// Whether nothing was cut yet.
  bool is_whole() const {
    return stay_.first == 0 && stay_.sure == answer_.size() && stay_.others == stay_.others_sure &&
           stay_.lowest == kNoScore;
  }

  /// Leaves listed tokens alone, before this place.
  void end_at(std::size_t place) {
    stay_.possible = std::min(stay_.possible, place);
    stay_.sure = std::min(stay_.sure, place);
    stay_.others = stay_.others_sure = false;
  }

  void cut_to_best(std::size_t count) {
    if (count >= total_ - stay_.first) return;
    if (count <= answer_.size() - stay_.first) return end_at(stay_.first + count);
    stay_.others_sure = false;
  }

  void cut_to_nucleus(double share) {
    const Bounds all = mass();
    const std::span<const double> weights = listed(stay_.possible);
    // A scan sums in another order: where a sum comes so near, that decides.
    stay_.sure = std::min(stay_.sure, stay_.first + reach(weights, share * all.low * (1.0 - kLogitRounding)));
    const std::size_t longest = reach(weights, share * all.high * (1.0 + kLogitRounding));
    if (longest <= weights.size() || !stay_.others) end_at(stay_.first + longest);
    stay_.others_sure = false;
  }

  void cut_by_share(double share) {
    cut_below(static_cast<double>(answer_.logits[stay_.first]) + temperature_ * std::log(share));
  }

  void cut_by_deviation(double sigmas) {
    const auto best = static_cast<double>(answer_.logits.front());
    const double surely = best - sigmas * deviation_->low;
    stay_.sure = std::min(stay_.sure, count_reaching(surely));
    cut_below(best - sigmas * deviation_->high);
    stay_.others_sure = false;
  }

  std::size_t count_reaching(double lowest) const {
    const auto begin = answer_.logits.begin();
    const auto lower = [lowest](float logit) { return static_cast<double>(logit) < lowest; };
    return static_cast<std::size_t>(std::find_if(begin, answer_.logits.end(), lower) - begin);
  }

  void cut_below(double lowest) {
    stay_.lowest = std::max(stay_.lowest, lowest);
    const std::size_t count = count_reaching(lowest);
    if (count < answer_.size()) end_at(count);
  }

  void cut_top(double threshold) {
    const Bounds all = mass();
    const std::span<const double> weights = listed(stay_.possible);
    const auto reaching = [weights](double least) {
      return static_cast<std::size_t>(
          std::partition_point(weights.begin(), weights.end(), [least](double x) { return x >= least; }) -
          weights.begin());
    };
    const std::size_t count = reaching(threshold * all.high * (1.0 + kLogitRounding));
    const bool may_go_on = stay_.others && count == weights.size();
    stay_.decided &= count == reaching(threshold * all.low * (1.0 - kLogitRounding)) &&
                     stay_.first + count <= stay_.sure && !may_go_on;
    if (!stay_.decided || count < 2) return;
    stay_.first += count - 1;
    temper(temperature_);
  }

  /// What needs all tokens that are left: told where the answer lists them.
  void cut_all(SamplingStep step, const SamplingOptions& options) {
    stay_.decided &= !stay_.others && stay_.sure == stay_.possible;
    if (!stay_.decided) return;
    SamplingOptions only = {.temperature = temperature_};
    if (step == SamplingStep::typical_p) only.typical_p = options.typical_p;
    if (step == SamplingStep::top_n_sigma) only.top_n_sigma = options.top_n_sigma;
    const std::span<const float> left =
        std::span(answer_.logits).subspan(stay_.first, stay_.possible - stay_.first);
    const KeptLogits kept(left, only, false);
    std::size_t begin = 0;
    while (!kept.stays(static_cast<TokenId>(begin))) ++begin;
    std::size_t end = left.size();
    while (!kept.stays(static_cast<TokenId>(end - 1))) --end;
    stay_.sure = stay_.possible = stay_.first + end;
    stay_.first += begin;
    temper(temperature_);
  }

  const TopK& answer_;
  std::size_t total_;
  const Outside& outside_at_;
  const std::optional<LogitDeviation>& deviation_;
  double temperature_ = 1.0;
  Staying stay_;
  std::vector<double> weights_;  ///< of the listed tokens, and of all others: 1 is the first's that stays
  std::optional<Bounds> outside_;
};

inline Staying staying(const TopK& answer, std::size_t total, const SamplingOptions& options, bool excludes,
                       const Outside& outside, const std::optional<LogitDeviation>& deviation) {
  Narrowing narrowing(answer, total, outside, deviation);
  for (const SamplingStep step : options.order.steps) {
    if (step == SamplingStep::temperature && options.temperature != 1.0)
      narrowing.temper(options.temperature);
    if (cuts(options, step)) narrowing.cut(step, options, excludes);
    if (!narrowing.stay().decided) break;
  }
  Staying stay = narrowing.stay();
  stay.mass = narrowing.mass();
  return stay;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
