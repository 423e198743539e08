// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/config.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What rescoring, selecting and normalising work in (candidates.hpp, exhaustive.hpp, exact.hpp).
struct AnswerScratch {
  ScratchBuffer logits;  ///< of the candidates, or of all tokens
  ScratchBuffer best;    ///< the k best so far, of every context of a batch
  ScratchBuffer heaps;   ///< of a batch
  ScratchBuffer sums;    ///< likewise
  ScratchBuffer edits;   ///< likewise
  ScratchBuffer ids;     ///< of few allowed tokens
  ScratchBuffer edited;  ///< the candidates and the tokens that the query edits
  TokenSet seen;         ///< those among them
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
