// SPDX-License-Identifier: Apache-2.0
#include "harness/reports/notes.hpp"

#include <ostream>

namespace topksoftmax::bench {

void print_notes(std::span<const std::string> notes, std::ostream& out) {
  for (const std::string& note : notes) out << note << '\n';
}

}  // namespace topksoftmax::bench
