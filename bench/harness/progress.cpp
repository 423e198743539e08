// SPDX-License-Identifier: Apache-2.0
#include "harness/progress.hpp"

#include <ostream>

namespace topksoftmax::bench {
namespace {

constexpr const char* kClearLine = "\r\033[K";

}  // namespace

void Progress::show(const std::string& what) {
  if (terminal_ == nullptr || what == shown_) return;
  *terminal_ << kClearLine << what << std::flush;
  shown_ = what;
}

void Progress::show(const std::string& what, double share) {
  show(what + " " + std::to_string(static_cast<int>(100.0 * share)) + " %");
}

void Progress::clear() {
  if (terminal_ == nullptr || shown_.empty()) return;
  *terminal_ << kClearLine << std::flush;
  shown_.clear();
}

}  // namespace topksoftmax::bench
