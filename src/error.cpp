// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/error.hpp"

namespace topksoftmax {

// Defined here so that the type has one key function, and catching it works across shared libraries.
Error::Error(const std::string& message) : std::runtime_error(message) {}
Error::~Error() = default;

}  // namespace topksoftmax
