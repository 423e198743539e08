// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Adds its lifetime in seconds to a counter.
class Stopwatch {
 public:
  /// Starts; the destructor adds the seconds since to `seconds`.
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() {
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace TOPKSOFTMAX_NAMESPACE
