// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace topksoftmax::testing {

/// How often this thread has called operator new, counted by a replacement of it in allocations.cpp; under a
/// sanitizer, how often it has allocated at all.
std::size_t allocations();

}  // namespace topksoftmax::testing
