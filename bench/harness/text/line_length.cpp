// SPDX-License-Identifier: Apache-2.0
#include "harness/text/line_length.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <iostream>
#include <limits>

namespace topksoftmax::bench {

std::size_t line_length(const std::ostream& out) {
  constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();
  const bool is_output = &out == &std::cout;
  if (!is_output && &out != &std::cerr) return kAny;
  winsize terminal = {};
  if (ioctl(is_output ? STDOUT_FILENO : STDERR_FILENO, TIOCGWINSZ, &terminal) != 0) return kAny;
  return terminal.ws_col == 0 ? kAny : terminal.ws_col;
}

}  // namespace topksoftmax::bench
