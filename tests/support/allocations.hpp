// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace topksoftmax::testing {

/// How often this thread has called operator new, counted by a replacement of it in allocations.cpp.
std::size_t allocations();

}  // namespace topksoftmax::testing
