// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "topksoftmax/export.hpp"

namespace topksoftmax {

/// What the expectation of values in [0, 1] is at least, with this confidence, if `count` independent ones of
/// them have this mean: the smallest p for which count · KL(mean ‖ p) ≤ ln(1/(1 − confidence)), where KL(a ‖
/// p) = a·ln(a/p) + (1 − a)·ln((1 − a)/(1 − p)). Whatever the values' distribution, the expectation lies
/// below it in at most a share 1 − confidence of all samples (Hoeffding, "Probability inequalities for sums
/// of bounded random variables", 1963, inequality 2.1; near 1 it is much closer than his better known 2.3).
/// From `count` values no more than (1 − confidence)^(1/count) can be had, which is what a mean of 1 gives.
///
/// Cost: a hundred logarithms. Throws std::invalid_argument for a mean outside of [0, 1], a confidence that
/// is not between 0 and 1, and without values.
TOPKSOFTMAX_EXPORT double mean_lower_bound(double mean, std::size_t count, double confidence);

}  // namespace topksoftmax
