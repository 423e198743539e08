// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>
#include <vector>

#include "harness/heads/head.hpp"
#include "harness/measuring/machine.hpp"
#include "harness/measuring/measurer.hpp"
#include "harness/text/progress.hpp"
#include "topksoftmax/evaluation/timing.hpp"
#include "topksoftmax/parallel/executor.hpp"

namespace topksoftmax::bench {

/// Works that were timed by turns with reads of a buffer of the layer's size: the machine's limit.
struct TimedBesideReads {
  std::vector<Timing> timings;  ///< of the works
  double read_gb_s = 0.0;
  std::vector<std::string> notes;  ///< what is to be known of the timing
};

/// Times works on `count` contexts, so many in one go, and reads on all threads of the executor, which are
/// the works' too. A single thread is pinned.
TimedBesideReads time_beside_reads(std::vector<TimedWork> works, std::size_t count, std::size_t slice,
                                   const Head& head, const MeasureOptions& measure, const Executor& executor,
                                   Progress& progress);

/// What machine and layer they are about, in two lines of which the second is open.
void print_beside_reads(const Machine& machine, double read_gb_s, const Head& head, std::ostream& out);

}  // namespace topksoftmax::bench
