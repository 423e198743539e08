// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "topksoftmax/decoding/distribution.hpp"
#include "topksoftmax/decoding/random_stream.hpp"
#include "topksoftmax/export.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {

/// What became of a drafted token.
struct DraftVerdict {
  bool accepted = false;
  TokenId token = 0;  ///< the draft, or what takes its place
};

/// The modified rejection step: a token x drawn from `draft` (p) is accepted with probability min(1,
/// q(x)/p(x)), q being `target`; otherwise a token is drawn from norm(max(0, q − p)). Either way the token
/// has exactly the distribution q. Takes one or two numbers of the stream.
///
/// Throws std::invalid_argument for p(x) = 0: x was not drawn from `draft`, and no rule would give q then.
/// Where rounding leaves nothing of q − p, the token is drawn from q.
///
/// Source: "Accelerating Large Language Model Decoding with Speculative Sampling" (Chen et al., 2023),
/// Theorem 1.
TOPKSOFTMAX_EXPORT DraftVerdict verify_draft(TokenId drafted, const Distribution& draft,
                                             const Distribution& target, RandomStream& random);

/// How speculative sampling went.
struct SpeculativeReport {
  std::size_t drafts = 0;       ///< K
  std::size_t rounds = 0;       ///< target passes
  std::size_t drafted = 0;      ///< tokens drafted
  std::size_t accepted = 0;     ///< drafts accepted
  std::size_t produced = 0;     ///< tokens appended
  std::size_t given = 0;        ///< tokens that the rounds gave, those beyond the end or the count included
  double draft_seconds = 0.0;   ///< in the draft model
  double target_seconds = 0.0;  ///< in the target model

  /// r, the mean number of tokens a round gave over K + 1, the most that it could. 0 before the first round.
  double acceptance_rate() const;

  /// Seconds for `tokens` tokens as the paper predicts them: N/(r(K+1)) · (K·t_draft + t_target), from the
  /// means that were measured.
  double predicted_seconds(std::size_t tokens) const;
};

struct SpeculativeOptions {
  std::size_t drafts = 4;                     ///< K, tokens drafted a round, at least 1
  std::optional<TokenId> end = std::nullopt;  ///< a token that ends the text; it is appended
};

/// The distribution of the token after `tokens`.
using DraftModel = std::function<Distribution(std::span<const TokenId> tokens)>;

/// A model that is asked about several positions at once. `tokens` ends in `drafted` tokens that are only
/// drafts; the result has drafted + 1 distributions: of the token in the place of each draft, given those
/// before it, and of the token after all. They must be made as the draft's are: same temperature and cuts on
/// both sides keep the acceptance high, and any p keeps the text distributed as q.
using TargetModel =
    std::function<std::vector<Distribution>(std::span<const TokenId> tokens, std::size_t drafted)>;

/// Speculative sampling: appends up to `count` tokens to `tokens`, distributed exactly as if each had been
/// drawn from the target model alone. A round drafts K tokens, lets the target score all of them in one pass,
/// accepts the first of them as verify_draft says, and draws one more from the target where all were
/// accepted. Models that keep a state must go back to where `tokens` says they are.
///
/// Throws std::invalid_argument for K = 0 and for a target that gives another number of distributions; what
/// the models throw passes through, and `tokens` then ends in whole rounds.
///
/// Cost: K draft steps and one target pass a round, for 1 to K + 1 tokens.
TOPKSOFTMAX_EXPORT SpeculativeReport speculative_sample(std::vector<TokenId>& tokens, std::size_t count,
                                                        const DraftModel& draft, const TargetModel& target,
                                                        RandomStream& random,
                                                        const SpeculativeOptions& options = {});

}  // namespace topksoftmax
