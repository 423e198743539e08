// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/certified/survivors.hpp"
#include "topksoftmax/certified/threshold.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/exhaustive.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Answers for a slice of a vocabulary of which the `wanted` ≥ query.k best are looked for on all slices:
/// raise(logit) is told a logit that so many tokens of the slice reach, or kNoThreshold, and returns one that
/// so many of all reach; it is called once, unless something is thrown before. Tokens below it may be missing
/// in the answer, which is certified otherwise. Throws what raise() does, and as a query does.
///
/// Cost: that of the query, less the rows that reach the slice's own threshold alone.
template <class Raise>
void answer_above(const Certified& head, const Query& query, std::size_t wanted, const Raise& raise,
                  Workspace& workspace, TopK& answer) {
  const CertifiedIndex& index = head.screener().index();
  if (!is_worth_bounding(query, index)) {
    raise(kNoThreshold);
    return answer_from_all(head.layer(), query, workspace, answer);
  }
  const BoundedQuery bounded = detail::bounded(head.layer(), index, query, workspace);
  std::size_t bytes_read = 0;
  const float own = bounded.bounds.usable ? threshold_from_best(bounded, bytes_read) : kNoThreshold;
  const float raised = raise(query.k == wanted ? own : kNoThreshold);
  Candidates candidates = candidates_reaching(bounded, std::max(own, raised), index.rows());
  candidates.bytes_read += bytes_read;
  Query some = query;
  some.fall_back = candidates.everything;  // the others may have all that are wanted
  answer_from_candidates(head.layer(), some, candidates, workspace, answer);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
