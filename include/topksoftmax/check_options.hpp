// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/numeric/wide_number.hpp"
#include "topksoftmax/option_limits.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Checks an option that it is called with.
class TOPKSOFTMAX_EXPORT OptionCheck {
 public:
  explicit OptionCheck(std::string_view owner) : owner_(owner) {}

  template <class T>
  void operator()(std::string_view name, const T& value, std::string_view /*help*/,
                  const OptionLimits& limits) const {
    static_assert(std::is_arithmetic_v<T>, "limits are for numbers");
    if (!limits.allow(static_cast<double>(value))) refuse(name, static_cast<WideNumber<T>>(value), limits);
  }
  template <class T>
  void operator()(std::string_view name, const std::optional<T>& value, std::string_view help,
                  const OptionLimits& limits) const {
    if (value) (*this)(name, *value, help, limits);
  }
  template <VisitedOptions Options>
  void operator()(std::string_view /*name*/, const Options& options) const {
    Options::visit(options, *this);
  }
  /// What has no limits, or choices that the compiler checks.
  template <class T, class... Any>
  void operator()(std::string_view /*name*/, const T& /*value*/, std::string_view /*help*/,
                  const Any&... /*choices*/) const {}

 private:
  [[noreturn]] void refuse(std::string_view name, double value, const OptionLimits& limits) const;
  [[noreturn]] void refuse(std::string_view name, std::int64_t value, const OptionLimits& limits) const;
  [[noreturn]] void refuse(std::string_view name, std::uint64_t value, const OptionLimits& limits) const;
  Error outside(std::string_view name, const std::string& value, const OptionLimits& limits) const;

  std::string_view owner_;
};

/// The Error where something is not what it must be to the layer or to other options: "svd: preview_width is
/// 300; it must be between 1 and d = 200".
TOPKSOFTMAX_EXPORT Error bad_value(std::string_view name, std::size_t value, std::string_view limit,
                                   std::size_t bound);

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

/// Throws Error for an option outside its limits: "fgd: M is 1; it must be at least 2 and at most 1024".
/// What options must be to each other, or to the layer, is their owner's to check.
template <VisitedOptions Options>
void check_options(std::string_view owner, const Options& options) {
  Options::visit(options, detail::OptionCheck(owner));
}

}  // namespace TOPKSOFTMAX_NAMESPACE

#if defined(TOPKSOFTMAX_HEADER_ONLY)
#include "topksoftmax/check_options-inl.hpp"
#endif
