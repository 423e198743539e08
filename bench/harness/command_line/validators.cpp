// SPDX-License-Identifier: Apache-2.0
#include "harness/command_line/validators.hpp"

#include <optional>
#include <sstream>
#include <string>

#include "topksoftmax/numeric/number_text.hpp"

namespace topksoftmax::bench {
namespace {

/// `what` as in "a whole number from 1 to 9". Text that is not all a number, or one that is not allowed, is
/// refused.
template <class Number, class Allow>
CLI::Validator allowed(const std::string& what, Allow allow) {
  return CLI::Validator(
      [allow, refusal = " must be " + what](const std::string& text) {
        const std::optional<Number> value = detail::number_of<Number>(text);
        return value && allow(*value) ? std::string() : "\"" + text + "\"" + refusal;
      },
      "");
}

template <class Number>
CLI::Validator in_range(const std::string& what, Number least, Number most) {
  std::ostringstream limits;
  limits << what << " from " << least << " to " << most;
  return allowed<Number>(limits.str(),
                         [least, most](Number value) { return value >= least && value <= most; });
}

}  // namespace

CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
  return in_range("a whole number", least, most);
}

CLI::Validator count() {
  return whole_number(1, 1'000'000'000);
}

CLI::Validator number(double least, double most) {
  return in_range("a number", least, most);
}

CLI::Validator number(const OptionLimits& limits) {
  return allowed<double>("a number " + limits.text(), [limits](double value) { return limits.allow(value); });
}

CLI::Validator file_name() {
  return CLI::Validator(
      [](const std::string& text) { return text.empty() ? "must be the name of a file" : std::string(); },
      "");
}

}  // namespace topksoftmax::bench
