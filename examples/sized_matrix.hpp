// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "check_finite.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax::examples {

/// A tensor of this shape (SafetensorsFile::any_size matches every size) as float32; Error, which names it,
/// where it has another one, or a value that is not finite.
inline RowMajorMatrix sized_matrix(const SafetensorsFile& file, const std::string& tensor,
                                   const std::array<std::size_t, 2>& shape) {
  file.tensor(tensor, shape);
  RowMajorMatrix values = file.matrix(tensor);
  check_finite(file, tensor, values);
  return values;
}

}  // namespace topksoftmax::examples
