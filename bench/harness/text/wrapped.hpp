// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace topksoftmax::bench {

/// Words separated by single spaces, in lines of so many characters. A longer word has a line of its own.
std::string wrapped(std::string_view text, std::size_t columns);

}  // namespace topksoftmax::bench
