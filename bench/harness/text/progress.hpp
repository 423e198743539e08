// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <string>

namespace topksoftmax::bench {

/// What the harness is at, in one line of a terminal that is written over and over.
class Progress {
 public:
  /// Writes to `terminal`; null shows nothing.
  explicit Progress(std::ostream* terminal) : terminal_(terminal) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const std::string& what);
  /// The same with a bar of the share that is done, 0 … 1.
  void show(const std::string& what, double share);

  /// Leaves an empty line for what is to be printed.
  void clear();

 private:
  std::ostream* terminal_;
  std::string shown_;
};

}  // namespace topksoftmax::bench
