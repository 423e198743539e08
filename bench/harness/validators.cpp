// SPDX-License-Identifier: Apache-2.0
#include "harness/validators.hpp"

#include <charconv>
#include <sstream>
#include <string>
#include <system_error>

namespace topksoftmax::bench {
namespace {

/// `what` as in "a whole number". Text that is not all a number, or one outside of the range, is refused.
template <class Number>
CLI::Validator in_range(const std::string& what, Number least, Number most) {
  std::ostringstream limits;
  limits << " must be " << what << " from " << least << " to " << most;
  return CLI::Validator(
      [least, most, refusal = limits.str()](const std::string& text) {
        Number value{};
        const char* const end = text.data() + text.size();
        const auto read = std::from_chars(text.data(), end, value);
        const bool good = read.ec == std::errc() && read.ptr == end && value >= least && value <= most;
        return good ? std::string() : "\"" + text + "\"" + refusal;
      },
      "");
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

CLI::Validator file_name() {
  return CLI::Validator(
      [](const std::string& text) { return text.empty() ? "must be the name of a file" : std::string(); },
      "");
}

}  // namespace topksoftmax::bench
