// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "screeners/prefix_index.hpp"
#include "topksoftmax/candidates.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/workspace.hpp"

namespace topksoftmax {

/// Whether so few tokens are asked for that bounding all others can pay.
bool is_worth_bounding(const Query& query, const PrefixIndex& index);

/// The k-th best logit of rows with high estimates: the exact threshold, or just below it. −∞ if fewer than k
/// rows may be returned.
float threshold_from_best(const SoftmaxLayer& layer, const PrefixIndex& index, const Query& query,
                          const PrefixIndex::Bounds& bounds, Workspace& workspace, std::size_t& bytes_read);

/// A better one from the rows that may reach it, where these are many.
float threshold_from_reaching(float threshold, const SoftmaxLayer& layer, const PrefixIndex& index,
                              const Query& query, const PrefixIndex::Bounds& bounds, Workspace& workspace,
                              std::size_t& bytes_read);

/// The tokens that may be among the k best when k tokens are known to reach `threshold`, certified, with log
/// Z as an interval no wider than the query tolerates. Every token where these are too many, or where their
/// prefixes let more than `most` reach the threshold, which then costs no more than finding that out.
Candidates candidates_reaching(float threshold, const SoftmaxLayer& layer, const PrefixIndex& index,
                               const Query& query, const PrefixIndex::Bounds& bounds, std::size_t most,
                               Workspace& workspace);

}  // namespace topksoftmax
