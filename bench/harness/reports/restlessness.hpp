// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "topksoftmax/evaluation/timing.hpp"

namespace topksoftmax::bench {

/// The largest spread of timings; 0 of none.
double largest_spread(const std::vector<Timing>& timings);

/// What a report says of figures whose rounds spread as far as this (Timing::spread): a line where the
/// machine was restless, or nothing.
std::vector<std::string> remarks_on_spread(double largest);

}  // namespace topksoftmax::bench
