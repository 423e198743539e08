// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "harness/backends/choice.hpp"
#include "harness/measuring/measurer.hpp"

namespace topksoftmax::bench {

/// Throws UsageError where --set gives a parameter that the sweep varies.
void check_sweep(std::span<const Choice> choices);

/// Measures each of the chosen backends at every combination of the values that its axes take on this head,
/// one system after the other, each against the fastest exact backend. Rows come out system by system.
/// Settings that a backend refuses on this head are left out, with a note: a single one where it refuses all
/// of them for the same reason.
Measurement sweep(Measurer& measurer, std::span<const Choice> choices);

/// The rows of a sweep that no other row of their system beats, in speed and in any of the precisions.
Measurement pareto_rows(const Measurement& swept, std::span<const std::size_t> ks);

}  // namespace topksoftmax::bench
