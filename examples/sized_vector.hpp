// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <array>
#include <cstddef>
#include <string>

#include "check_finite.hpp"
#include "topksoftmax/io/safetensors.hpp"

namespace topksoftmax::examples {

/// A tensor of `size` values as float32; Error, which names it, where it has another shape, or a value that
/// is not finite.
inline Eigen::VectorXf sized_vector(const SafetensorsFile& file, const std::string& tensor,
                                    std::size_t size) {
  file.tensor(tensor, std::array{size});
  Eigen::VectorXf values = file.vector(tensor);
  check_finite(file, tensor, values);
  return values;
}

}  // namespace topksoftmax::examples
