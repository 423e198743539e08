// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace topksoftmax::bench {

/// How much more memory the process holds at its peak than it did when this was made: what a build takes, its
/// index included.
class PeakMemory {
 public:
  /// Forgets the peaks of before. One at a time.
  PeakMemory();

  /// In bytes; NaN where the system does not tell (other than Linux, and where /proc is not to be written).
  double growth() const;

 private:
  double before_;
};

}  // namespace topksoftmax::bench
