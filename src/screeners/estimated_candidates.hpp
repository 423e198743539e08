// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/workspace.hpp"

namespace topksoftmax {

/// The `wanted` tokens with the highest of `vocab` estimated logits, of equals the lower ids; all others keep
/// their estimates in log Z (Normalizer::low_rank). Every token where so many are not allowed. Changes the
/// estimates. Works in Workspace::screen[4] and Workspace::candidates.
Candidates best_estimated(const Query& query, float* estimates, std::size_t vocab, std::size_t wanted,
                          Workspace& workspace);

}  // namespace topksoftmax
