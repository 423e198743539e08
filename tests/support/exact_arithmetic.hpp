// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <boost/multiprecision/cpp_int.hpp>
#include <cstddef>
#include <cstdint>

namespace topksoftmax::testing {

/// Sums of products of floats without any rounding: whole numbers of 2⁻²⁹⁸, which the least product of two
/// floats is. 700 bits hold 2¹⁰⁰ times the largest.
using ExactNumber = boost::multiprecision::number<boost::multiprecision::cpp_int_backend<
    700, 700, boost::multiprecision::signed_magnitude, boost::multiprecision::unchecked, void>>;

/// A finite float as mantissa · 2^exponent.
struct FloatParts {
  std::int64_t mantissa;
  int exponent;  ///< −149 at the least

  explicit FloatParts(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const auto field = static_cast<int>(bits >> 23 & 0xffU);
    const auto fraction = static_cast<std::int64_t>(bits & 0x7fffffU);
    mantissa = field == 0 ? fraction : fraction | 0x800000;
    if ((bits >> 31) != 0) mantissa = -mantissa;
    exponent = field == 0 ? -149 : field - 150;
  }
};

/// mantissa · 2^exponent, exponent ≥ −298.
inline ExactNumber exact(std::int64_t mantissa, int exponent) {
  ExactNumber number = mantissa;
  return number << static_cast<unsigned>(exponent + 298);
}

inline ExactNumber exact(float x) {
  const FloatParts parts(x);
  return exact(parts.mantissa, parts.exponent);
}

/// w·h + b [d] of finite floats.
inline ExactNumber exact_logit(const float* w, const float* h, std::size_t d, float b) {
  ExactNumber sum = exact(b);
  for (std::size_t j = 0; j < d; ++j) {
    const FloatParts x(w[j]);
    const FloatParts y(h[j]);
    if (x.mantissa != 0 && y.mantissa != 0) sum += exact(x.mantissa * y.mantissa, x.exponent + y.exponent);
  }
  return sum;
}

}  // namespace topksoftmax::testing
