// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/decoding/distribution.hpp"
#include "topksoftmax/decoding/draft_verdict.hpp"
#include "topksoftmax/decoding/random_stream.hpp"
#include "topksoftmax/decoding/speculative_options.hpp"
#include "topksoftmax/decoding/speculative_report.hpp"
#include "topksoftmax/decoding/weights.hpp"
#include "topksoftmax/stopwatch.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Throws std::invalid_argument where a draft has no probability.
inline void check_draft(TokenId drafted, double p) {
  if (p > 0.0) return;
  throw std::invalid_argument("speculative sampling: token " + std::to_string(drafted) +
                              " was drafted, but its draft distribution gives it no probability");
}

/// A token drawn from norm(max(0, q − p)), or from q if nothing is left.
inline TokenId draw_from_residual(const Distribution& draft, const Distribution& target, double u) {
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

inline const Distribution& whole(const Distribution& target) {
  return target;
}

/// verify_draft, where whole(target) is needed for a rejected draft alone.
template <class Target, class Whole>
DraftVerdict verify(TokenId drafted, const Distribution& draft, const Target& target, const Whole& whole,
                    RandomStream& random) {
  const double p = draft[drafted];
  check_draft(drafted, p);
  if (random.uniform() * p < target[drafted]) return {.accepted = true, .token = drafted};
  return {.accepted = false, .token = draw_from_residual(draft, whole(target), random.uniform())};
}

/// The rounds of speculative sampling. draft_one(text) gives the distribution of the next token; score(text)
/// looks at a text that ends in K drafts; target(i) then gives the probabilities in the place of the i-th,
/// asked for in order and no further than is needed, and whole(target(i)) their distribution.
template <class DraftOne, class Score, class Target, class Whole>
SpeculativeReport run_rounds(std::vector<TokenId>& tokens, std::size_t count, RandomStream& random,
                             const SpeculativeOptions& options, const DraftOne& draft_one, const Score& score,
                             const Target& target, const Whole& whole) {
  if (options.drafts == 0) {
    throw std::invalid_argument("speculative sampling: drafts is 0; at least 1 token must be drafted");
  }
  SpeculativeReport report;
  report.drafts = options.drafts;
  std::vector<Distribution> drafts(options.drafts);
  std::vector<TokenId> text = tokens;
  for (bool ended = false; !ended && report.produced < count;) {
    const std::size_t kept = text.size();
    {
      const Stopwatch watch(report.draft_seconds);
      for (Distribution& draft : drafts) {
        draft = draft_one(std::span<const TokenId>(text));
        text.push_back(draft.draw(random.uniform()));
      }
    }
    const Stopwatch watch(report.target_seconds);
    score(std::span<const TokenId>(text));
    std::size_t accepted = 0;
    TokenId last = 0;
    for (bool rejected = false; !rejected;) {
      if (accepted == options.drafts) {
        last = whole(target(accepted)).draw(random.uniform());
        break;
      }
      const DraftVerdict verdict =
          verify(text[kept + accepted], drafts[accepted], target(accepted), whole, random);
      rejected = !verdict.accepted;
      last = verdict.token;
      if (!rejected) ++accepted;
    }
    text.resize(kept + accepted);
    text.push_back(last);
    ++report.rounds;
    report.drafted += options.drafts;
    report.accepted += accepted;
    report.given += accepted + 1;

    std::size_t end = kept + std::min(text.size() - kept, count - report.produced);
    for (std::size_t i = kept; options.end.has_value() && i < end; ++i) {
      if (text[i] != *options.end) continue;
      end = i + 1;
      ended = true;
    }
    tokens.insert(tokens.end(), text.begin() + static_cast<std::ptrdiff_t>(kept),
                  text.begin() + static_cast<std::ptrdiff_t>(end));
    report.produced += end - kept;
  }
  return report;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
