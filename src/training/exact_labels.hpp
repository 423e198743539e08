// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "topksoftmax/contexts.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/training/candidate_sets.hpp"

namespace topksoftmax {

/// The exact top `depth` tokens of every context, of which the first `top` are its labels; both at most V. A
/// near miss weighs value · exp((its logit − the last label's)/temperature): as much as its odds of being a
/// label elsewhere. Cost: N·V·d multiply-adds, on every thread.
Labels exact_labels(const SoftmaxLayer& layer, const Contexts& contexts, std::size_t top, std::size_t depth,
                    double value, double temperature);

}  // namespace topksoftmax
