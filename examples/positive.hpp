// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace topksoftmax::examples {

/// Takes whole numbers from 1 on. The check that CLI11 has for it names a limit of 300 digits.
inline CLI::Range positive() {
  return CLI::Range(1, 1'000'000);
}

}  // namespace topksoftmax::examples
