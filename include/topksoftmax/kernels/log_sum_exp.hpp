// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::kernels {

/// How wrong Implementation::sum_exp, and a LogSumExp of Implementation::add_exp, is at the most, relatively:
/// partial sums are right to 2⁻¹⁸, exponentials to 2⁻²², and x − max to 2⁻²⁴ of itself, of which more than ln
/// V does not count.
inline constexpr double kSumExpError = 6e-6;

/// A whole number of up to 116 bits.
class WideSum {
 public:
  /// Adds |x| ≤ 2⁵³.
  void add(std::int64_t x) {
    low_ += x;
    high_ += low_ >> kLowBits;
    low_ &= (std::int64_t{1} << kLowBits) - 1;
  }
  /// Adds another sum.
  void add(const WideSum& other) {
    add(other.low_);
    high_ += other.high_;
  }

  /// The sum, rounded to float64.
  double value() const { return static_cast<double>(high_) * 0x1p53 + static_cast<double>(low_); }

 private:
  static constexpr int kLowBits = 53;

  std::int64_t high_ = 0;
  std::int64_t low_ = 0;  ///< at least 0, and below 2⁵³
};

/// log Σ exp(x) of up to 2³¹ values that come in any order, in parts that are added: the same bits whatever
/// the order and the parts.
///
/// An exponential is in float32, and is added as whole numbers: how many units of 2⁴⁰ᵗ it is, to the nearest,
/// for `top` = t, and how many of 2⁴⁰⁽ᵗ⁻¹⁾ the rest is. What it adds on a level depends on nothing else, and
/// whole numbers add up without rounding (the binned sums of Demmel and Nguyen, "Parallel Reproducible
/// Summation", 2015, with bins that are integers). The top level is the lowest on which the largest value is
/// below half of what the next one counts in, so no value adds to a higher one; what is left below the second
/// is at most 2⁻⁴⁰ of the largest for each value.
struct LogSumExp {
  /// Levels that are kept.
  static constexpr std::size_t kLevels = 2;
  /// Bits from one level to the next.
  static constexpr double kLevelBits = 40.0;

  /// The largest value so far.
  float max = -std::numeric_limits<float>::infinity();
  double top = -std::numeric_limits<double>::infinity();  ///< whole
  /// What was added on each level, in its unit.
  std::array<WideSum, kLevels> levels{};

  /// Makes room for values up to x.
  void raise(float x) {
    if (!(x > max)) return;
    max = x;
    // exp(x) < 2ⁿ⁺¹, and 2ⁿ⁺¹ is at most half of what the level above counts in.
    const double least = std::ceil((power_of_two(x) + 2.0) / kLevelBits) - 1.0;
    if (!(least > top)) return;
    levels = {WideSum(), least - top == 1.0 ? levels[0] : WideSum()};
    top = least;
  }

  /// Adds exp(x), there being room for it, where |x| > 700 or x is −∞: what kernels leave to double
  /// precision.
  void add(float x) {
    if (x == -std::numeric_limits<float>::infinity()) return;
    const double units = static_cast<double>(static_cast<float>(units_of(x)));
    const double whole = std::nearbyint(units);
    levels[0].add(static_cast<std::int64_t>(whole));
    levels[1].add(static_cast<std::int64_t>(std::nearbyint((units - whole) * kLevelUnits)));
  }

  /// Adds the values of another sum.
  void add(LogSumExp other) {
    other.raise(max);
    raise(other.max);
    for (std::size_t l = 0; l < kLevels; ++l) levels[l].add(other.levels[l]);
  }

  /// −∞ when nothing was added.
  double value() const {
    if (max == -std::numeric_limits<float>::infinity()) return static_cast<double>(max);
    const double units = levels[0].value() + levels[1].value() / kLevelUnits;
    return static_cast<double>(max) + std::log(units / units_of(max));
  }

 private:
  static constexpr double kLevelUnits = 0x1p40;
  static constexpr double kLn2High = 0x1.62e42fefa39efp-1;
  static constexpr double kLn2Low = 0x1.abc9e3b39803fp-56;

  /// The n for which exp(x) is next to 2ⁿ; of values so large that no double holds log Z to a nat, the same.
  static double power_of_two(float x) {
    return std::clamp(std::nearbyint(static_cast<double>(x) * 0x1.71547652b82fep0), -0x1p52, 0x1p52);
  }

  /// exp(x) in units of the top level; what is too small to add to a level need not be right.
  double units_of(float x) const {
    constexpr double least = -100.0;
    const double n = power_of_two(x);
    const double rest = std::fma(-n, kLn2Low, std::fma(-n, kLn2High, static_cast<double>(x)));
    return std::ldexp(std::exp(std::clamp(rest, -0.35, 0.35)),
                      static_cast<int>(std::max(n - kLevelBits * top, least)));
  }
};

/// log(exp(a) + exp(b)), where either may be −∞.
inline double log_add_exp(double a, double b) {
  const double high = a > b ? a : b;
  const double low = a > b ? b : a;
  return low == -std::numeric_limits<double>::infinity() ? high : high + std::log1p(std::exp(low - high));
}

}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
