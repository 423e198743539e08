// SPDX-License-Identifier: Apache-2.0
#include "harness/text/progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <ostream>

namespace topksoftmax::bench {
namespace {

constexpr const char* kClearLine = "\r\033[K";

/// What of it stands on one line of the terminal: of two, only the last would be cleared.
std::string one_line(const std::string& what) {
  winsize terminal = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &terminal) != 0) return what;
  std::size_t columns = 0;
  for (std::size_t i = 0; i < what.size(); ++i) {
    const bool begins = (static_cast<unsigned char>(what[i]) & 0xC0U) != 0x80U;  // a character of UTF-8
    if (begins && ++columns == terminal.ws_col) return what.substr(0, i);
  }
  return what;
}

}  // namespace

void Progress::show(const std::string& what) {
  if (terminal_ == nullptr || what == shown_) return;
  *terminal_ << kClearLine << one_line(what) << std::flush;
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
