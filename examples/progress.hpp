// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>

namespace topksoftmax::examples {

/// A line that counts up while something takes long; nothing where the output is no terminal.
inline void show_progress(const std::string& step, double done) {
  if (isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "\r\033[K  %s … %.0f %%", step.c_str(), 100.0 * done);
  if (done >= 1.0) std::fprintf(stderr, "\r\033[K");
}

}  // namespace topksoftmax::examples
