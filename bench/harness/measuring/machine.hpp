// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace topksoftmax::bench {

/// What the figures were measured on.
struct Machine {
  std::string cpu;
  unsigned cores = 0;  ///< processors that the system shows
  std::string simd;    ///< the kernels' instruction set
};

Machine describe_machine();

}  // namespace topksoftmax::bench
