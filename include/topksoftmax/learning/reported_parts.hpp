// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

#include "topksoftmax/config.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// for_each_part(), in rounds after each of which `report` is told the share that is done. The parts are the
/// same with and without it.
template <class Body>
void for_each_reported_part(const Executor& executor, std::size_t total, std::size_t size,
                            const StepProgress& report, const Body& body) {
  constexpr std::size_t kReports = 50;  // about: who waits for the last part of a round waits idly
  if (!report) return for_each_part(executor, total, size, body);
  const std::size_t at_once = size * executor.threads();
  const std::size_t round = at_once * (total / (at_once * kReports) + 1);
  for (std::size_t begin = 0; begin < total; begin += round) {
    const std::size_t end = std::min(begin + round, total);
    for_each_part(executor, end - begin, size,
                  [&](std::size_t first, std::size_t count) { body(begin + first, count); });
    report(static_cast<double>(end) / static_cast<double>(total));
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
