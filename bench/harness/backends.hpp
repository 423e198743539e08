// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "harness/backend.hpp"

namespace topksoftmax::bench {

/// The table of all backends: what they are called, what their parameters are, how they are built and what
/// --sweep varies in them.
std::vector<Backend> make_backends();

}  // namespace topksoftmax::bench
