// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/logit_transform.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The `wanted` tokens with the highest of `vocab` estimated products, of equals the lower ids; all others
/// keep the logits that the transform makes of theirs in log Z (Normalizer::low_rank). Every token where so
/// many are not allowed. Changes the estimates.
TOPKSOFTMAX_EXPORT Candidates best_estimated(const Query& query, const LogitTransform& transform,
                                             float* estimates, std::size_t vocab, std::size_t wanted,
                                             Workspace& workspace);

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

#if defined(TOPKSOFTMAX_HEADER_ONLY)
#include "topksoftmax/estimated_candidates-inl.hpp"
#endif
