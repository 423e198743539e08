// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

#include "topksoftmax/error.hpp"

namespace topksoftmax::testing {

/// The message of the Error that an action throws, or "" where it throws nothing.
template <class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// The message of the std::invalid_argument that an action throws, or "" where it throws nothing.
template <class Action>
std::string refusal(const Action& action) {
  try {
    action();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

}  // namespace topksoftmax::testing
