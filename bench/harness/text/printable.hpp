// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace topksoftmax::bench {

/// Text of a file that anyone may have written, with "?" in the place of what would steer a terminal, break a
/// line, or change the order in which others are shown.
std::string printable(std::string_view text);

}  // namespace topksoftmax::bench
