// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <span>
#include <string>

namespace topksoftmax::bench {

/// Prints what is to be known of figures besides them, a line each, as every report does.
void print_notes(std::span<const std::string> notes, std::ostream& out);

}  // namespace topksoftmax::bench
