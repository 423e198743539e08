// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "topksoftmax/config.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Moves the `wanted` ≤ count ids with the largest values[id], of equals the lower ids, to the front, in any
/// order.
TOPKSOFTMAX_EXPORT void put_largest_first(TokenId* ids, std::size_t count, std::size_t wanted,
                                          const float* values);

/// The k-th largest, 1 ≤ k ≤ count, of count values, whose order it changes.
TOPKSOFTMAX_EXPORT float kth_largest(float* values, std::size_t count, std::size_t k);

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

#if defined(TOPKSOFTMAX_HEADER_ONLY)
#include "topksoftmax/numeric/largest-inl.hpp"
#endif
