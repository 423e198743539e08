// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "topksoftmax/types.hpp"

namespace topksoftmax {

/// Contexts [count×dim], by plain pointer: row i at data + i·stride. A view: what it shows must outlive it.
struct Contexts {
  const float* data = nullptr;
  std::size_t count = 0;
  std::size_t dim = 0;
  std::size_t stride = 0;

  static Contexts of(const ConstRows& H) {
    return {H.data(), static_cast<std::size_t>(H.rows()), static_cast<std::size_t>(H.cols()),
            static_cast<std::size_t>(H.outerStride())};
  }

  const float* row(std::size_t i) const { return data + i * stride; }
};

}  // namespace topksoftmax
