// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

#include "topksoftmax/export.hpp"

namespace topksoftmax {

/// Thrown when a layer, a backend or a file cannot be built, trained or loaded.
/// The message says what was wrong, the value found and the limit it broke.
class TOPKSOFTMAX_EXPORT Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message);
  ~Error() override;
};

}  // namespace topksoftmax
