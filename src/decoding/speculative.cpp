// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/speculative.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "decoding/speculative_round.hpp"
#include "decoding/weights.hpp"

namespace topksoftmax {
void check_draft(TokenId drafted, double p) {
  if (p > 0.0) return;
  throw std::invalid_argument("speculative sampling: token " + std::to_string(drafted) +
                              " was drafted, but its draft distribution gives it no probability");
}

TokenId draw_from_residual(const Distribution& draft, const Distribution& target, double u) {
  std::vector<double> weights(target.probabilities().begin(), target.probabilities().end());
  std::size_t at = 0;
  for (std::size_t i = 0; i < draft.size(); ++i) {
    const TokenId id = draft.id(i);
    while (at < weights.size() && target.id(at) < id) ++at;
    if (at == weights.size()) break;
    if (target.id(at) == id) weights[at] = std::max(0.0, weights[at] - draft.probabilities()[i]);
  }
  const double sum = sum_of(weights);
  if (!(sum > 0.0)) return target.draw(u);
  return target.id(find_in_cumulative(weights, u * sum));
}

namespace {

const Distribution& whole(const Distribution& target) {
  return target;
}

}  // namespace

DraftVerdict verify_draft(TokenId drafted, const Distribution& draft, const Distribution& target,
                          RandomStream& random) {
  return verify(drafted, draft, target, whole, random);
}

double SpeculativeReport::acceptance_rate() const {
  if (rounds == 0) return 0.0;
  return static_cast<double>(given) / static_cast<double>(rounds * (drafts + 1));
}

double SpeculativeReport::predicted_seconds(std::size_t tokens) const {
  if (rounds == 0) return 0.0;
  const double draft = draft_seconds / static_cast<double>(drafted);
  const double target = target_seconds / static_cast<double>(rounds);
  const auto most = static_cast<double>(drafts + 1);
  return static_cast<double>(tokens) / (acceptance_rate() * most) *
         (static_cast<double>(drafts) * draft + target);
}

SpeculativeReport speculative_sample(std::vector<TokenId>& tokens, std::size_t count, const DraftModel& draft,
                                     const TargetModel& target, RandomStream& random,
                                     const SpeculativeOptions& options) {
  std::vector<Distribution> scored;
  const auto score = [&](std::span<const TokenId> text) {
    scored = target(text, options.drafts);
    if (scored.size() != options.drafts + 1) {
      throw std::invalid_argument("speculative sampling: the target gave " + std::to_string(scored.size()) +
                                  " distributions for " + std::to_string(options.drafts) +
                                  " drafts; it must give one more than there are drafts");
    }
  };
  return run_rounds(
      tokens, count, random, options, draft, score,
      [&scored](std::size_t i) -> const Distribution& { return scored[i]; }, whole);
}

}  // namespace topksoftmax
