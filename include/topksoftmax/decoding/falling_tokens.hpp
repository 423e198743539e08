// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "topksoftmax/bounded_tokens.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The tokens of one context in falling order, by a head's bounds: those that may reach a cut are named, and
/// scored no sooner than their bounds let them be the next one. Once all that reach the cut are given, it is
/// lowered: only what lies between is new.
class FallingTokens {
 public:
  /// Of a head, which must outlive them.
  explicit FallingTokens(const TopKSoftmax& head) : head_(&head), met_(head.vocab()) {}

  /// Begins with a context, which with the mask and the biases of `query` must stay as it is. False where the
  /// head's bounds cannot tell the first ones; nothing can be asked for then.
  bool start(std::span<const float> h, const QueryOptions& query, Workspace& workspace);

  /// The next best token; nothing where bounds do not tell it, or no more cheaply than a scan would, or where
  /// none is left. Where it throws, no token is lost.
  std::optional<ScoredToken> next(Workspace& workspace);

  /// The tokens that were given, the best first.
  std::span<const ScoredToken> given() const { return given_; }

 private:
  /// A token that has not been scored, and what its logit does not exceed.
  struct Named {
    float most;
    TokenId id;
  };

  /// Tokens that are likely to reach the first cut.
  static constexpr std::size_t kFirst = 8;
  /// A cut is meant for so many times the tokens that the one before had.
  static constexpr std::size_t kGrowth = 3;
  /// More tokens than this share of the rows are not looked at one by one.
  static constexpr std::size_t kShare = 4;
  /// Fewer allowed tokens than this share of the rows are no matter for bounds.
  static constexpr std::size_t kFewShare = 16;
  static constexpr std::size_t kScoredAtOnce = 8;

  static bool is_below(const Named& a, const Named& b) { return a.most < b.most; }
  static bool is_behind(const ScoredToken& a, const ScoredToken& b) { return ranks_before(b, a); }

  void forget();
  bool name_above(float cut, Workspace& workspace);
  float next_cut() const;
  bool must_score() const;
  void score_some(Workspace& workspace);
  ScoredToken give();

  const TopKSoftmax* head_;
  std::span<const float> h_;
  QueryOptions query_;
  float cut_ = 0.0F;       ///< every token that reaches it is named, scored or given
  float lowering_ = 1.0F;  ///< of the step to the next cut, as the last ones led to no token
  std::vector<ScoredToken> given_;
  std::vector<ScoredToken> scored_;  ///< heap
  std::vector<Named> named_;         ///< the first `waiting_` are a heap, the others are about to be scored
  std::size_t waiting_ = 0;
  TokenMask met_;  ///< allows those that are scored or given
  BoundedTokens reaching_;
};

inline bool FallingTokens::start(std::span<const float> h, const QueryOptions& query, Workspace& workspace) {
  forget();
  h_ = h;
  query_ = query;
  // Few tokens are simply scored, and heads that answer together must be asked together.
  if (head_->collective() || head_->count_allowed(query.allowed) < head_->rows() / kFewShare) return false;
  if (!head_->likely_tokens(h, kFirst, query_, workspace, scored_) || scored_.size() < kFirst) {
    scored_.clear();
    return false;
  }
  query_.same_context = true;
  for (const ScoredToken& token : scored_) met_.allow(token.id);
  std::nth_element(scored_.begin(), scored_.begin() + (kFirst - 1), scored_.end(), ranks_before);
  const float cut = scored_[kFirst - 1].logit;
  std::make_heap(scored_.begin(), scored_.end(), is_behind);
  return name_above(cut, workspace);
}

/// Leaves no token of the context before.
inline void FallingTokens::forget() {
  for (const ScoredToken& token : given_) met_.forbid(token.id);
  for (const ScoredToken& token : scored_) met_.forbid(token.id);
  given_.clear();
  scored_.clear();
  named_.clear();
  waiting_ = 0;
  lowering_ = 1.0F;
}

/// Names all tokens that may reach the cut and are not met. False where they are too many.
inline bool FallingTokens::name_above(float cut, Workspace& workspace) {
  if (!head_->tokens_reaching(h_, cut, query_, workspace, reaching_)) return false;
  if (reaching_.ids.size() > head_->rows() / kShare) return false;
  named_.reserve(reaching_.ids.size());
  named_.clear();
  for (std::size_t i = 0; i < reaching_.ids.size(); ++i) {
    if (!met_.allows(reaching_.ids[i])) named_.push_back({reaching_.most[i], reaching_.ids[i]});
  }
  waiting_ = named_.size();
  std::make_heap(named_.begin(), named_.end(), is_below);
  cut_ = cut;
  return true;
}

/// Lower than the last token by as much as this one is than one of kGrowth times fewer: logits fall about as
/// the logarithm of their ranks.
inline float FallingTokens::next_cut() const {
  constexpr float kLeastStep = 0x1p-10F;
  const float last = given_.back().logit;
  const float step = given_[given_.size() / kGrowth].logit - last;
  return std::min(cut_, last) - lowering_ * std::max(step, kLeastStep * std::max(1.0F, std::abs(last)));
}

/// Whether a token that has not been scored may be the next one.
inline bool FallingTokens::must_score() const {
  if (waiting_ < named_.size()) return true;
  return waiting_ > 0 && (scored_.empty() || named_.front().most >= scored_.front().logit);
}

/// Scores those with the highest bounds. Where it throws, it is they who are scored next.
inline void FallingTokens::score_some(Workspace& workspace) {
  TokenId ids[kScoredAtOnce];
  float logits[kScoredAtOnce];
  while (waiting_ > 0 && named_.size() - waiting_ < kScoredAtOnce) {
    std::pop_heap(named_.begin(), named_.begin() + static_cast<std::ptrdiff_t>(waiting_--), is_below);
  }
  const std::size_t count = named_.size() - waiting_;
  for (std::size_t i = 0; i < count; ++i) ids[i] = named_[waiting_ + i].id;
  head_->logits_of(h_, {ids, count}, query_, workspace, {logits, count});
  for (std::size_t i = count; i-- > 0; named_.pop_back()) {
    if (logits[i] == kForbidden) continue;  // biases name forbidden tokens too
    scored_.push_back({logits[i], ids[i]});
    std::push_heap(scored_.begin(), scored_.end(), is_behind);
    met_.allow(ids[i]);
  }
}

/// The best of those that are scored.
inline ScoredToken FallingTokens::give() {
  given_.push_back(scored_.front());
  std::pop_heap(scored_.begin(), scored_.end(), is_behind);
  scored_.pop_back();
  lowering_ = 1.0F;
  return given_.back();
}

inline std::optional<ScoredToken> FallingTokens::next(Workspace& workspace) {
  for (;;) {
    if (must_score()) {
      score_some(workspace);
    } else if (!scored_.empty() && scored_.front().logit >= cut_) {
      return give();
    } else {
      if (given_.size() * kGrowth > head_->rows() / kShare) return std::nullopt;
      const float cut = next_cut();
      if (!(cut < cut_) || !name_above(cut, workspace)) return std::nullopt;
      lowering_ *= 2.0F;
    }
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
