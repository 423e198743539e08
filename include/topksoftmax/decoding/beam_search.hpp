// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "topksoftmax/contexts.hpp"
#include "topksoftmax/export.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {

struct BeamSearchOptions {
  std::size_t beam = 5;         ///< hypotheses of a sentence that are followed, at least 1
  std::size_t n_best = 1;       ///< hypotheses of a sentence that are returned at most, at least 1
  std::size_t max_length = 60;  ///< tokens of a hypothesis at most, the end token counted, at least 1
  double length_penalty = 0.0;  ///< α ≥ 0: hypotheses are compared by log P / length^α; 1 is the mean
  TokenId end = 0;              ///< the token that ends a sentence

  /// Tokens that may be written, and their biases; the mask must allow `end` for anything to end. k is the
  /// search's own business. A beam of 1 follows the most probable token and asks for probabilities only if
  /// these do; a wider one always does, and needs log Z as exactly as log_z_tolerance says (for backends that
  /// answer with an interval).
  QueryOptions query = {.probabilities = false, .log_z_tolerance = 0.0};
};

/// A sentence as far as it is written.
struct Hypothesis {
  std::vector<TokenId> tokens;  ///< without the start token, with the end token if it ended
  double log_prob = 0.0;        ///< Σ log P of its tokens; NaN where they were not asked for
  double score = 0.0;           ///< log_prob / length^α; likewise
  bool ended = false;           ///< false: max_length cut it off
};

/// A hypothesis that goes on: `token` follows what row `parent` of the step before had written.
struct BeamRow {
  std::size_t sentence = 0;
  std::size_t parent = 0;  ///< at the first step: the sentence
  TokenId token = 0;       ///< at the first step: the start token
};

/// Lets the model read one token of every row and gives their contexts [rows×d]. Rows are those of the step
/// before, copied, reordered and dropped: the state of row i comes from the state of its parent. The contexts
/// must stay as they are until the next call.
using BeamStep = std::function<Contexts(std::span<const BeamRow> rows)>;

/// Beam search over a batch of sentences, on any backend: every hypothesis is extended by its most probable
/// tokens, the `beam` best of a sentence go on, those that end are kept, until none that goes on can become
/// better than the n_best that ended. Returns the hypotheses of each sentence, the best score first; of equal
/// ones the one that was found first.
///
/// Words that are no candidates of an approximate backend have probability 0: its log-probabilities are
/// renormalised over the candidates, as in L2S, §4.2. Contexts of all sentences are one batch, so that
/// WTA-LSH shares its candidate list over them.
///
/// Deterministic: equal log-probabilities go to the earlier row, then to the lower token. Wide enough a beam
/// is an exhaustive search.
///
/// Throws std::invalid_argument for unusable options, for a step that gives other than one context a row, and
/// as query_batch does; what the step throws passes through.
///
/// Cost: a query with k = beam + 1 for each row and step.
TOPKSOFTMAX_EXPORT std::vector<std::vector<Hypothesis>> beam_search(const TopKSoftmax& head,
                                                                    std::span<const TokenId> start,
                                                                    const BeamStep& step,
                                                                    const BeamSearchOptions& options);

}  // namespace topksoftmax
