// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/decoding/kept_query.hpp"
#include "topksoftmax/numeric/number_text.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// A hypothesis that goes on: `token` follows what row `parent` of the step before had written.
struct BeamRow {
  /// The number of its sentence in the batch.
  std::size_t sentence = 0;
  std::size_t parent = 0;  ///< at the first step: the sentence
  TokenId token = 0;       ///< at the first step: the start token
};

/// The query of one hypothesis: its row, the tokens that it has written (without the start token) and the
/// context [d] of the next one. What the result refers to must stay as it is until the next call.
using BeamQuery = std::function<QueryOptions(const BeamRow& row, std::span<const TokenId> written,
                                             std::span<const float> h)>;

/// Options of a beam search. The search throws std::invalid_argument for values out of their ranges.
struct BeamSearchOptions {
  std::size_t beam = 5;         ///< hypotheses of a sentence that are followed, at least 1
  std::size_t n_best = 1;       ///< hypotheses of a sentence that are returned at most, at least 1
  std::size_t max_length = 60;  ///< tokens of a hypothesis at most, the end token counted, at least 1
  double length_penalty = 0.0;  ///< α ≥ 0: hypotheses are compared by log P / length^α; 1 is the mean
  TokenId end = 0;              ///< the token that ends a sentence

  /// Tokens that may be written, and their biases; the mask must allow `end` for anything to end. The search
  /// chooses k itself. A beam of 1 follows the most probable token and asks for probabilities only if
  /// these do; a wider one always does, and needs log Z as exactly as log_z_tolerance says (for backends that
  /// answer with an interval).
  QueryOptions query = {.probabilities = false, .log_z_tolerance = 0.0};

  /// Where hypotheses differ in what they may write: penalties for a hypothesis' own words (PenaltyBiases),
  /// the mask of a grammar, words that may not be repeated. Called on the caller's thread; of its result k
  /// and probabilities do not count, and log Z is found no less exactly than `query` has it. A hypothesis
  /// that it allows nothing is dropped. What its result refers to is copied, and the rows of a step are asked
  /// together, as TopKSoftmax::query_each() does. Empty: all are asked `query`, as one batch.
  BeamQuery query_of = {};
};

/// A sentence as far as it has been written.
struct Hypothesis {
  std::vector<TokenId> tokens;  ///< without the start token, with the end token if it ended
  double log_prob = 0.0;        ///< Σ log P of its tokens; NaN where they were not asked for
  double score = 0.0;           ///< log_prob / length^α; likewise
  bool ended = false;           ///< false: max_length cut it off
};

/// Lets the model read one token of every row and gives their contexts [rows×d]. Rows are those of the step
/// before, copied, reordered and dropped: the state of row i comes from the state of its parent. The contexts
/// must stay as they are until the next call.
using BeamStep = std::function<Contexts(std::span<const BeamRow> rows)>;

/// Beam search over a batch of sentences, on any backend: every hypothesis is extended by its most probable
/// tokens, the `beam` best of a sentence go on, those that end are kept, until none that goes on can become
/// better than the n_best that ended. Returns the hypotheses of each sentence, the best score first; of equal
/// ones the one that was found first. None of a sentence where nothing was allowed.
///
/// Words that are not candidates of an approximate backend are not found. Its log-probabilities are what its
/// log Z makes them: renormalised over the candidates, as in L2S, §4.2, or with what was learned of all other
/// words (Normalizer::learned). Without query_of, contexts of all sentences are one batch, so that WTA-LSH
/// shares its candidate list over 64 of them.
///
/// Deterministic: equal log-probabilities go to the earlier row, then to the lower token. A beam that is
/// wide enough is an exhaustive search.
///
/// Throws std::invalid_argument for unusable options, for a step that gives other than one context a row, and
/// as query_batch does; what the step and query_of throw passes through.
///
/// Cost: a query with k = beam + 1 (1 for a beam of 1) for each row and step, on the executor's threads; with
/// query_of a copy of a mask and biases for each row.
std::vector<std::vector<Hypothesis>> beam_search(const TopKSoftmax& head, std::span<const TokenId> start,
                                                 const BeamStep& step, const BeamSearchOptions& options,
                                                 const Executor& executor = SerialExecutor());

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

inline void require(bool holds, const std::string& name, const std::string& value, const std::string& limit) {
  if (holds) return;
  throw std::invalid_argument("beam search: " + name + " is " + value + "; it must be " + limit);
}

inline void check_beam_options(const BeamSearchOptions& options, std::size_t vocab) {
  require(options.beam >= 1, "beam", "0", "at least 1");
  require(options.n_best >= 1, "n_best", "0", "at least 1");
  require(options.max_length >= 1, "max_length", "0", "at least 1");
  require(std::isfinite(options.length_penalty) && options.length_penalty >= 0.0, "length_penalty",
          value_text(options.length_penalty), "finite and at least 0");
  require(options.end >= 0 && static_cast<std::size_t>(options.end) < vocab, "end",
          std::to_string(options.end), "a token below V = " + std::to_string(vocab));
}

/// A token that a row could go on with.
struct Extension {
  double log_prob;  ///< of the whole hypothesis
  std::size_t row;
  TokenId token;
};

inline bool goes_first(const Extension& a, const Extension& b) {
  if (a.log_prob != b.log_prob) return a.log_prob > b.log_prob;
  return a.row != b.row ? a.row < b.row : a.token < b.token;
}

/// The words of all hypotheses, each a link to what stands before it.
class Words {
 public:
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  std::size_t add(std::size_t before, TokenId token) {
    links_.push_back({before, token});
    return links_.size() - 1;
  }

  std::vector<TokenId> read(std::size_t last) const {
    std::vector<TokenId> tokens;
    for (; last != none; last = links_[last].before) tokens.push_back(links_[last].token);
    std::reverse(tokens.begin(), tokens.end());
    return tokens;
  }

 private:
  struct Link {
    std::size_t before;
    TokenId token;
  };
  std::vector<Link> links_;
};

/// What is known of a row beside its token.
struct Trail {
  double log_prob = 0.0;
  std::size_t words = Words::none;
};

class Search {
 public:
  Search(const TopKSoftmax& head, std::span<const TokenId> start, const BeamSearchOptions& options,
         const Executor& executor)
      : head_(head),
        options_(options),
        executor_(executor),
        finished_(start.size()),
        workspaces_(executor.threads()) {
    for (std::size_t s = 0; s < start.size(); ++s)
      rows_.push_back({.sentence = s, .parent = s, .token = start[s]});
    trails_.resize(rows_.size());
  }

  std::vector<std::vector<Hypothesis>> run(const BeamStep& step) {
    for (std::size_t length = 1; !rows_.empty(); ++length) {
      const Contexts contexts = step(rows_);
      if (contexts.count != rows_.size()) {
        throw std::invalid_argument("beam search: the step gave " + std::to_string(contexts.count) +
                                    " contexts for " + std::to_string(rows_.size()) +
                                    " rows; it must give one for each");
      }
      ask(contexts);
      advance(length);
    }
    return std::move(finished_);
  }

 private:
  void ask(const Contexts& contexts) {
    answers_.resize(std::max(answers_.size(), contexts.count));
    if (!options_.query_of) {
      head_.query_batch(contexts.data, contexts.count, contexts.dim, contexts.stride,
                        searched(options_.query), workspaces_, std::span(answers_).first(contexts.count),
                        executor_);
      return;
    }
    kept_.resize(std::max(kept_.size(), contexts.count));
    asked_.clear();
    for (std::size_t i = 0; i < contexts.count; ++i) {
      const std::span<const float> h(contexts.row(i), contexts.dim);
      const std::vector<TokenId> written = words_.read(trails_[i].words);
      kept_[i].keep(options_.query_of(rows_[i], written, h));
      asked_.push_back(searched(kept_[i].query()));
    }
    head_.query_each(contexts, asked_, workspaces_, std::span(answers_).first(contexts.count), executor_);
  }

  /// A query, for as many tokens as the search needs.
  QueryOptions searched(QueryOptions query) const {
    query.k = options_.beam == 1 ? 1 : std::min(options_.beam, head_.vocab()) + 1;
    query.probabilities = probabilities();
    query.log_z_tolerance = std::min(query.log_z_tolerance, options_.query.log_z_tolerance);
    return query;
  }

  bool probabilities() const { return options_.beam > 1 || options_.query.probabilities; }

  double log_prob(const TopK& answer, std::size_t i) const {
    if (!probabilities()) return std::numeric_limits<double>::quiet_NaN();
    return std::min(0.0, answer.log_prob(i));  // the middle of an interval of log Z may lie too low
  }

  double score(double log_prob, std::size_t length) const {
    return log_prob / std::pow(static_cast<double>(length), options_.length_penalty);
  }

  void finish(const Trail& trail, std::size_t length, bool ended, std::size_t sentence) {
    std::vector<Hypothesis>& best = finished_[sentence];
    const double value = score(trail.log_prob, length);
    const auto at =
        std::find_if(best.begin(), best.end(), [value](const Hypothesis& one) { return one.score < value; });
    if (static_cast<std::size_t>(at - best.begin()) >= options_.n_best) return;
    best.insert(
        at, {.tokens = words_.read(trail.words), .log_prob = trail.log_prob, .score = value, .ended = ended});
    if (best.size() > options_.n_best) best.pop_back();
  }

  /// Whether a hypothesis that goes on may still come among the best of its sentence: no longer text is more
  /// probable, and the longest has the mildest penalty.
  bool may_win(double log_prob, std::size_t sentence) const {
    const std::vector<Hypothesis>& best = finished_[sentence];
    return best.size() < options_.n_best || score(log_prob, options_.max_length) > best.back().score;
  }

  void advance(std::size_t length) {
    std::vector<BeamRow> next_rows;
    std::vector<Trail> next_trails;
    std::vector<Extension> extensions;
    for (std::size_t first = 0; first < rows_.size();) {
      const std::size_t sentence = rows_[first].sentence;
      extensions.clear();
      std::size_t last = first;
      for (; last < rows_.size() && rows_[last].sentence == sentence; ++last) {
        const TopK& answer = answers_[last];
        for (std::size_t i = 0; i < answer.size(); ++i) {
          extensions.push_back({trails_[last].log_prob + log_prob(answer, i), last, answer.ids[i]});
        }
      }
      if (options_.beam > 1) std::sort(extensions.begin(), extensions.end(), goes_first);
      extend(extensions, sentence, length, next_rows, next_trails);
      first = last;
    }
    rows_ = std::move(next_rows);
    trails_ = std::move(next_trails);
  }

  void extend(std::span<const Extension> extensions, std::size_t sentence, std::size_t length,
              std::vector<BeamRow>& next_rows, std::vector<Trail>& next_trails) {
    const std::size_t before = next_rows.size();
    for (const Extension& one : extensions) {
      if (next_rows.size() - before == options_.beam) break;
      const Trail trail = {one.log_prob, words_.add(trails_[one.row].words, one.token)};
      const bool ended = one.token == options_.end;
      if (ended || length == options_.max_length) {
        finish(trail, length, ended, sentence);
      } else {
        next_rows.push_back({.sentence = sentence, .parent = one.row, .token = one.token});
        next_trails.push_back(trail);
      }
    }
    std::size_t kept = before;
    for (std::size_t i = before; i < next_rows.size(); ++i) {
      if (!may_win(next_trails[i].log_prob, sentence)) continue;
      next_rows[kept] = next_rows[i];
      next_trails[kept++] = next_trails[i];
    }
    next_rows.resize(kept);
    next_trails.resize(kept);
  }

  const TopKSoftmax& head_;
  const BeamSearchOptions& options_;
  const Executor& executor_;
  std::vector<std::vector<Hypothesis>> finished_;
  std::vector<BeamRow> rows_;
  std::vector<Trail> trails_;
  Words words_;
  std::vector<Workspace> workspaces_;
  std::vector<TopK> answers_;
  std::vector<KeptQuery> kept_;      ///< of the rows, where they have queries of their own,
  std::vector<QueryOptions> asked_;  ///< and what is asked by them
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline std::vector<std::vector<Hypothesis>> beam_search(const TopKSoftmax& head,
                                                        std::span<const TokenId> start, const BeamStep& step,
                                                        const BeamSearchOptions& options,
                                                        const Executor& executor) {
  detail::check_beam_options(options, head.vocab());
  return detail::Search(head, start, options, executor).run(step);
}

}  // namespace TOPKSOFTMAX_NAMESPACE
