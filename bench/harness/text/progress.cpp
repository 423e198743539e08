// SPDX-License-Identifier: Apache-2.0
#include "harness/text/progress.hpp"

#include <algorithm>
#include <cstddef>
#include <ostream>

#include "harness/text/characters.hpp"
#include "harness/text/line_length.hpp"

namespace topksoftmax::bench {
namespace {

constexpr const char* kClearLine = "\r\033[K";

}  // namespace

void Progress::show(const std::string& what) {
  if (terminal_ == nullptr || what == shown_) return;
  // Of two lines, only the last would be cleared.
  *terminal_ << kClearLine << first_characters(what, line_length(*terminal_) - 1) << std::flush;
  shown_ = what;
}

void Progress::show(const std::string& what, double share) {
  constexpr int kCells = 20;
  const int percent = static_cast<int>(100.0 * std::clamp(share, 0.0, 1.0));
  const auto done = static_cast<std::size_t>(percent * kCells / 100);
  show(what + " [" + std::string(done, '#') + std::string(kCells - done, '.') + "] " +
       std::to_string(percent) + " %");
}

void Progress::clear() {
  if (terminal_ == nullptr || shown_.empty()) return;
  *terminal_ << kClearLine << std::flush;
  shown_.clear();
}

}  // namespace topksoftmax::bench
