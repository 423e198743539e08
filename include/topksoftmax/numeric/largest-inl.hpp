// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>

#include "topksoftmax/config.hpp"
#include "topksoftmax/numeric/largest.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

TOPKSOFTMAX_INLINE void put_largest_first(TokenId* ids, std::size_t count, std::size_t wanted,
                                          const float* values) {
  std::nth_element(ids, ids + wanted, ids + count, [values](TokenId a, TokenId b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  });
}

TOPKSOFTMAX_INLINE float kth_largest(float* values, std::size_t count, std::size_t k) {
  std::nth_element(values, values + (k - 1), values + count, std::greater<>());
  return values[k - 1];
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
