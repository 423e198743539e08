// SPDX-License-Identifier: Apache-2.0
#include "harness/experiments/beside_reads.hpp"

#include <optional>
#include <ostream>
#include <utility>

#include "harness/reports/restlessness.hpp"
#include "harness/text/table.hpp"
#include "topksoftmax/evaluation/bandwidth.hpp"
#include "topksoftmax/evaluation/pinned_thread.hpp"

namespace topksoftmax::bench {

TimedBesideReads time_beside_reads(std::vector<TimedWork> works, std::size_t count, std::size_t slice,
                                   const Head& head, const MeasureOptions& measure, const Executor& executor,
                                   Progress& progress) {
  ReadProbe probe(head.layer.bytes());
  const std::size_t threads = executor.threads();
  works.emplace_back([&](std::size_t, std::size_t number) {
    for (std::size_t i = 0; i < number; ++i) probe.read(threads, executor);
  });
  std::optional<PinnedThread> pinned;
  if (threads == 1) pinned.emplace();
  std::vector<Timing> timings = time_interleaved(
      works, count, {.rounds = measure.rounds, .slice = slice, .progress = [&progress](double share) {
                       progress.show("timing", share);
                     }});
  const double seconds = timings.back().seconds_per_item;
  timings.pop_back();
  std::vector<std::string> notes = remarks_on_spread(largest_spread(timings));
  return {.timings = std::move(timings),
          .read_gb_s = 1e-9 * static_cast<double>(probe.bytes()) / seconds,
          .notes = std::move(notes)};
}

void print_beside_reads(const Machine& machine, double read_gb_s, const Head& head, std::ostream& out) {
  out << machine.cpu << ", " << machine.simd << ", reads " << fixed(read_gb_s, 1)
      << " GB/s from a buffer of the layer's size\n"
      << head.name << ": V = " << head.layer.vocab() << ", d = " << head.layer.dim();
}

}  // namespace topksoftmax::bench
