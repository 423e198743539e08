// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/numeric/finite.hpp"
#include "topksoftmax/numeric/number_text.hpp"

namespace topksoftmax::examples {

/// Throws Error, which names the tensor, where one of the values read from it is NaN or infinite.
inline void check_finite(const SafetensorsFile& file, const std::string& tensor, const auto& values) {
  const auto size = static_cast<std::size_t>(values.size());
  const std::size_t first = detail::first_not_finite(values.data(), size);
  if (first == size) return;
  throw file.error(tensor, "value " + std::to_string(first) + " is " +
                               detail::value_text(values.data()[first]) + "; it must be finite");
}

}  // namespace topksoftmax::examples
