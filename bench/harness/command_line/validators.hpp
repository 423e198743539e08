// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

#include "topksoftmax/option_limits.hpp"

namespace topksoftmax::bench {

// What the values of options must be. Those that are not are refused in a short sentence.

/// A whole number of this range.
CLI::Validator whole_number(std::uint64_t least, std::uint64_t most);

/// A number that counts something: at least 1, and not so large that sums of a few overflow.
CLI::Validator count();

/// A number of this range, NaN excluded.
CLI::Validator number(double least, double most);

/// A number within these limits, NaN excluded.
CLI::Validator number(const OptionLimits& limits);

/// The name of a file: not empty.
CLI::Validator file_name();

}  // namespace topksoftmax::bench
