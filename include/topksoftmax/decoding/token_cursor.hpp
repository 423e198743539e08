// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "topksoftmax/config.hpp"
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
/// Cost: queries for 8 tokens, for 32, for 128 and so on, each where the tokens of the one before did not
/// suffice. A query is asked again as a whole but for what the head still knows of the context
/// (QueryOptions::same_context), at a third or less of what the next one costs where costs grow with k.
class TokenCursor {
 public:
  /// For the context h [d] and the tokens that the mask allows. Of `query` the mask, the biases and the
  /// effort count. The head, the context, mask and biases must outlive it and stay as they are. Throws as a
  /// query does.
  TokenCursor(const TopKSoftmax& head, std::span<const float> h, const QueryOptions& query = {})
      : head_(&head), h_(h), query_(query) {
    query_.k = kFirst;
    query_.probabilities = false;
    query_.log_z_tolerance = std::numeric_limits<double>::infinity();
    head.query(h_, query_, workspace_, answer_);
    certified_ = answer_.certified;
  }

  /// The next best token; nothing where there is none left. Throws as a query does, and can then be called
  /// again: no token is lost.
  std::optional<ScoredToken> next() {
    for (;;) {
      for (; at_ < answer_.size(); ++at_) {
        const TokenId id = answer_.ids[at_];
        const auto place = std::lower_bound(given_.begin(), given_.end(), id);
        if (place != given_.end() && *place == id) continue;
        given_.insert(place, id);
        certified_ &= answer_.certified;
        return ScoredToken{answer_.logits[at_], id};
      }
      if (answer_.size() < query_.k) return std::nullopt;
      QueryOptions wider = query_;
      wider.k *= kGrowth;
      wider.same_context = true;
      head_->query(h_, wider, workspace_, answer_);
      query_ = wider;
      at_ = 0;
    }
  }

  /// Whether the tokens so far are proven to be the best ones, in their order. Before the first token:
  /// whether that one will be.
  bool certified() const { return certified_; }

 private:
  static constexpr std::size_t kFirst = 8;
  static constexpr std::size_t kGrowth = 4;

  const TopKSoftmax* head_;
  std::span<const float> h_;
  QueryOptions query_;
  Workspace workspace_;
  TopK answer_;
  bool certified_ = false;      ///< every answer was that gave a token
  std::size_t at_ = 0;          ///< what follows in the answer …
  std::vector<TokenId> given_;  ///< … but for these, ascending
};

}  // namespace TOPKSOFTMAX_NAMESPACE
