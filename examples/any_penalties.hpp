// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/decoding/penalties.hpp"

namespace topksoftmax::examples {

/// Whether these change anything.
inline bool are_any(const Penalties& penalties) {
  return penalties.repetition != 1.0 || penalties.presence != 0.0 || penalties.frequency != 0.0;
}

}  // namespace topksoftmax::examples
