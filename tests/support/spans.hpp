// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <span>

namespace topksoftmax::testing {

/// A context as the calls take it that know nothing of Eigen.
inline std::span<const float> span_of(const Eigen::VectorXf& h) {
  return {h.data(), static_cast<std::size_t>(h.size())};
}

}  // namespace topksoftmax::testing
