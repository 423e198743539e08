// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/decoding/distribution.hpp"
#include "topksoftmax/decoding/draft_verdict.hpp"
#include "topksoftmax/decoding/random_stream.hpp"
#include "topksoftmax/decoding/speculative_options.hpp"
#include "topksoftmax/decoding/speculative_report.hpp"
#include "topksoftmax/decoding/speculative_round.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The modified rejection step: a token x drawn from `draft` (p) is accepted with probability min(1,
/// q(x)/p(x)), q being `target`; otherwise a token is drawn from norm(max(0, q − p)). Either way the token
/// has exactly the distribution q. Takes one or two numbers of the stream.
///
/// Throws std::invalid_argument for p(x) = 0: x was not drawn from `draft`, and no rule would give q then.
/// Where rounding leaves nothing of q − p, the token is drawn from q.
///
/// Source: "Accelerating Large Language Model Decoding with Speculative Sampling" (Chen et al., 2023),
/// Theorem 1.
DraftVerdict verify_draft(TokenId drafted, const Distribution& draft, const Distribution& target,
                          RandomStream& random);

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
SpeculativeReport speculative_sample(std::vector<TokenId>& tokens, std::size_t count, const DraftModel& draft,
                                     const TargetModel& target, RandomStream& random,
                                     const SpeculativeOptions& options = {});

inline DraftVerdict verify_draft(TokenId drafted, const Distribution& draft, const Distribution& target,
                                 RandomStream& random) {
  return detail::verify(drafted, draft, target, detail::whole, random);
}

inline SpeculativeReport speculative_sample(std::vector<TokenId>& tokens, std::size_t count,
                                            const DraftModel& draft, const TargetModel& target,
                                            RandomStream& random, const SpeculativeOptions& options) {
  std::vector<Distribution> scored;
  const auto score = [&](std::span<const TokenId> text) {
    scored = target(text, options.drafts);
    if (scored.size() != options.drafts + 1) {
      throw std::invalid_argument("speculative sampling: the target gave " + std::to_string(scored.size()) +
                                  " distributions for " + std::to_string(options.drafts) +
                                  " drafts; it must give one more than there are drafts");
    }
  };
  return detail::run_rounds(
      tokens, count, random, options, draft, score,
      [&scored](std::size_t i) -> const Distribution& { return scored[i]; }, detail::whole);
}

}  // namespace TOPKSOFTMAX_NAMESPACE
