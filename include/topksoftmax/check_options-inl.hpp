// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "topksoftmax/check_options.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/numeric/number_text.hpp"
#include "topksoftmax/option_limits.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

TOPKSOFTMAX_INLINE void OptionCheck::refuse(std::string_view name, double value,
                                            const OptionLimits& limits) const {
  throw outside(name, value_text(value), limits);
}

TOPKSOFTMAX_INLINE void OptionCheck::refuse(std::string_view name, std::int64_t value,
                                            const OptionLimits& limits) const {
  throw outside(name, std::to_string(value), limits);
}

TOPKSOFTMAX_INLINE void OptionCheck::refuse(std::string_view name, std::uint64_t value,
                                            const OptionLimits& limits) const {
  throw outside(name, std::to_string(value), limits);
}

TOPKSOFTMAX_INLINE Error OptionCheck::outside(std::string_view name, const std::string& value,
                                              const OptionLimits& limits) const {
  return Error(std::string(owner_) + ": " + std::string(name) + " is " + value + "; it must be " +
               limits.text());
}

TOPKSOFTMAX_INLINE Error bad_value(std::string_view name, std::size_t value, std::string_view limit,
                                   std::size_t bound) {
  return Error(std::string(name) + " is " + std::to_string(value) + "; it must be " + std::string(limit) +
               std::to_string(bound));
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
