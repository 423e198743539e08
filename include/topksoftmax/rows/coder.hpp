// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "topksoftmax/config.hpp"
#include "topksoftmax/numeric/round_outwards.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Codes of some bits for coordinates x: x ≈ scale·(2u − 2^bits + 1) − 2·scale·t, where t is the coordinate's
/// dither. Without any, t = 0, that is the nearest code. With t uniform in ± ½ the error is uniform in ±
/// scale whatever x is, as long as |x| ≤ reach(): subtractive dither (Schuchman, "Dither Signals and Their
/// Effect on Quantization Noise", 1964).
class Coder {
 public:
  Coder(std::size_t bits, double scale) : half_(1 << (bits - 1)), scale_(scale) {}

  /// u, the code that is nearest where x is out of reach.
  int code(double x, double t) const {
    if (!(scale_ > 0.0)) return half_;
    const double limit = half_;
    return static_cast<int>(std::floor(std::clamp(0.5 * x / scale_ + t, -limit, limit - 1.0))) + half_;
  }

  /// What the code stands for.
  double value(int u, double t) const { return scale_ * (2 * (u - half_) + 1 - 2.0 * t); }

  double scale() const { return scale_; }

  /// The largest |x| that is coded with an error of at most the scale, whatever its dither.
  double reach() const { return scale_ * (2 * half_ - 1); }

 private:
  int half_;
  double scale_;
};

/// Scales to choose among, as shares of that which reaches all coordinates.
inline constexpr std::array<double, 6> kScaleShares = {1.0, 0.92, 0.84, 0.76, 0.68, 0.6};

/// Of these the bfloat16 for which cost(coder) is least, where the largest coordinate is `peak`.
template <class Cost>
std::uint16_t cheapest_scale(std::size_t bits, double peak, const Cost& cost) {
  std::uint16_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (const double share : kScaleShares) {
    const std::uint16_t scale = bfloat16_up(share * peak / static_cast<double>((1 << bits) - 1));
    const double costs = cost(Coder(bits, bfloat16_value(scale)));
    if (costs < least) {
      least = costs;
      best = scale;
    }
  }
  return best;
}

/// The scale that loses least of some coordinates without dither. What lies beyond the largest code is cut
/// off: of normal numbers in four bits, 2.7 standard deviations are best.
inline std::uint16_t nearest_scale(std::size_t bits, double peak, std::span<const double> x) {
  return cheapest_scale(bits, peak, [x](const Coder& coder) {
    double lost = 0.0;
    for (const double value : x) {
      const double off = value - coder.value(coder.code(value, 0.0), 0.0);
      lost += off * off;
    }
    return lost;
  });
}

/// How much of some coordinates lies beyond a coder's reach: √Σ max(|x_j| − reach, 0)².
inline double beyond_reach(const Coder& coder, std::span<const double> x) {
  double beyond = 0.0;
  for (const double value : x) {
    const double excess = std::max(std::abs(value) - coder.reach(), 0.0);
    beyond += excess * excess;
  }
  return std::sqrt(beyond);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
