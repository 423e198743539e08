// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "topksoftmax/check_query.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/decoding/falling_tokens.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The tokens of one context in falling order, one at a time: for grammars that accept or reject the next
/// best one. What a certifying backend gives is the order of all logits; an approximate one gives what it
/// finds, no token twice.
///
/// Cost on a backend that certifies: the context is bounded once, and the rows are found that may be among 8
/// likely ones; once these are used up, those that may be among about three times as many, and so on. A token
/// is scored when its bound lets it be the next one, and never twice. Once it has given a twelfth of the
/// rows, it queries for four times as many tokens as it has given, and again when these are used up. Where
/// fewer than a sixteenth of the rows are allowed, and on other backends: queries for 8 tokens, for 32, for
/// 128 and so on, each where the tokens of the one before did not suffice.
class TokenCursor {
 public:
  /// For the context h [d] and the tokens that the mask allows. Of `query` the mask, the biases and the
  /// effort count. The head, the context, mask and biases must outlive it and stay as they are. Throws as a
  /// query does.
  TokenCursor(const TopKSoftmax& head, std::span<const float> h, const QueryOptions& query = {})
      : head_(&head), falling_(head) {
    start(h, query);
  }

  /// Threads that what follows is read on, from the next context on best: they must outlive the cursor. Worth
  /// it where a query reads megabytes; the tokens are the same.
  void lend_threads(const Executor& executor) { workspace_.set_crew({&executor, executor.threads()}); }

  /// Begins again, with another context and other tokens; throws as the constructor does. Where memory runs
  /// out, next() begins with these all the same. The cursor keeps its memory: to start one again for each
  /// context is faster than to make new ones.
  void start(std::span<const float> h, const QueryOptions& query = {}) {
    detail::check_limits(query);
    h_ = h;
    query_ = query;
    query_.probabilities = false;
    query_.log_z_tolerance = std::numeric_limits<double>::infinity();
    query_.k = kFirst;
    count_ = 0;
    answer_ = {};
    asked_ = 0;
    at_ = 0;
    given_.clear();
    is_bounded_ = false;
    certified_ = head_->certifies();
    is_bounded_ = falling_.start(h_, query_, workspace_);
    if (is_bounded_) return;
    ask(kFirst);
    certified_ = answer_.certified;
  }

  /// The next best token; nothing where there is none left. Throws as a query does, and can then be called
  /// again: no token is lost.
  std::optional<ScoredToken> next() {
    if (is_bounded_) {
      if (const std::optional<ScoredToken> token = falling_.next(workspace_)) return token;
      given_.assign(head_->vocab(), false);
      for (const ScoredToken& token : falling_.given()) give(token.id);
      is_bounded_ = false;
    }
    if (given_.empty()) given_.assign(head_->vocab(), false);
    for (;;) {
      for (; at_ < answer_.size(); ++at_) {
        const TokenId id = answer_.ids[at_];
        if (!give(id)) continue;
        certified_ &= answer_.certified;
        return ScoredToken{answer_.logits[at_], id};
      }
      if (answer_.size() < asked_) return std::nullopt;
      ask(std::max(kFirst, std::max(asked_, count_) * kGrowth));
    }
  }

  /// Whether the tokens so far are proven to be the best ones, in their order. Before the first token:
  /// whether that one will be.
  bool certified() const { return certified_; }

 private:
  static constexpr std::size_t kFirst = 8;
  static constexpr std::size_t kGrowth = 4;

  /// Whether this token was not given before; it is now.
  bool give(TokenId id) {
    const auto token = static_cast<std::size_t>(id);
    if (given_[token]) return false;
    given_[token] = true;
    ++count_;
    return true;
  }

  void ask(std::size_t k) {
    query_.k = k;
    head_->query(h_, query_, workspace_, answer_);
    query_.same_context = true;
    asked_ = k;
    at_ = 0;
  }

  const TopKSoftmax* head_;
  std::span<const float> h_;
  QueryOptions query_;
  Workspace workspace_;
  detail::FallingTokens falling_;
  bool is_bounded_ = false;  ///< the next token is one of these; else:
  TopK answer_;              ///< for `asked_` tokens
  std::size_t asked_ = 0;
  std::size_t at_ = 0;       ///< what follows in the answer …
  std::vector<bool> given_;  ///< … but for these: by token
  std::size_t count_ = 0;    ///< of them
  bool certified_ = false;   ///< every answer was that gave a token
};

}  // namespace TOPKSOFTMAX_NAMESPACE
