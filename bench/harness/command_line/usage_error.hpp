// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

namespace topksoftmax::bench {

/// What the user asked for makes no sense: the message says why, in one line.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace topksoftmax::bench
