// SPDX-License-Identifier: Apache-2.0
#include "harness/reports/restlessness.hpp"

#include <algorithm>

#include "harness/text/table.hpp"

namespace topksoftmax::bench {
namespace {

/// Above this, the rounds of the timing disagree so much that the figures deserve no trust.
constexpr double kRestless = 0.1;

}  // namespace

double largest_spread(const std::vector<Timing>& timings) {
  double largest = 0.0;
  for (const Timing& timing : timings) largest = std::max(largest, timing.spread);
  return largest;
}

std::vector<std::string> remarks_on_spread(double largest) {
  if (!(largest > kRestless)) return {};
  return {"the machine is restless: rounds differ by up to " + fixed(100.0 * largest, 0) + " %"};
}

}  // namespace topksoftmax::bench
