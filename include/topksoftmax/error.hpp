// SPDX-License-Identifier: Apache-2.0
#pragma once

#if !defined(__cpp_exceptions)
#error \
    "topksoftmax/error.hpp, and with it all headers but those of kernels/ and top_k.hpp, needs exceptions; topksoftmax/c/topksoftmax.h does not"
#endif

#include <stdexcept>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Thrown when a layer, a backend or a file cannot be built, trained or loaded.
/// The message says what was wrong, the value found and the limit it broke.
class TOPKSOFTMAX_EXPORT Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace TOPKSOFTMAX_NAMESPACE
