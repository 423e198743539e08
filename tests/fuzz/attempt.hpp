// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fuzz/targets.hpp"
#include "topksoftmax/error.hpp"

namespace topksoftmax::fuzz {

/// Errors are an answer too.
template <class Action>
void attempt(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    require(error.what()[0] != '\0', "an Error says what is wrong");
  }
}

}  // namespace topksoftmax::fuzz
