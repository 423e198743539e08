// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <iosfwd>

namespace topksoftmax::bench {

/// Characters that a line of `out` holds: those of its terminal, or any number where it is none.
std::size_t line_length(const std::ostream& out);

}  // namespace topksoftmax::bench
