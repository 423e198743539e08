// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <charconv>
#include <cstddef>
#include <string>

#include "topksoftmax/config.hpp"
#include "topksoftmax/option_limits.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A limit as a message has it: whole where it is, "1e6" where it is large, "1e-6" where it is small.
inline std::string limit_text(double limit) {
  std::array<char, 32> text{};
  const bool whole = limit > -1e5 && limit < 1e5 && limit == static_cast<double>(static_cast<int>(limit));
  char* const end = whole ? std::to_chars(text.data(), text.data() + text.size(), static_cast<int>(limit)).ptr
                          : std::to_chars(text.data(), text.data() + text.size(), limit).ptr;
  std::string written(text.data(), end);
  const std::size_t exponent = written.find('e');
  if (exponent == std::string::npos) return written;
  const bool negative = written[exponent + 1] == '-';
  const std::size_t digits = written.find_first_not_of("+-0", exponent + 1);
  return written.substr(0, exponent + 1) + (negative ? "-" : "") + written.substr(digits);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

TOPKSOFTMAX_INLINE std::string OptionLimits::text() const {
  const std::string least = detail::limit_text(low);
  const std::string most = detail::limit_text(high);
  const std::string zero = or_zero ? "0 or " : "";
  if (wording == Wording::from) return zero + "from " + least + " to " + most;
  if (wording == Wording::between) return zero + "between " + least + " and " + most;
  std::string text = zero;
  if (low != -none) text += (above_low ? "above " : "at least ") + least;
  if (high != none)
    text += (low == -none ? "" : " and ") + std::string(below_high ? "below " : "at most ") + most;
  return text;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
