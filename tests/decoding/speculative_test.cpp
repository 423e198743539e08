// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/speculative.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "support/statistics.hpp"

namespace topksoftmax {
namespace {

constexpr std::size_t kVocab = 5;

/// A distribution that depends on the token before, sharper or flatter by its power.
Distribution after(std::span<const TokenId> tokens, double power, unsigned shift) {
  const auto last = tokens.empty() ? 0U : static_cast<unsigned>(tokens.back());
  std::vector<double> weights;
  for (unsigned id = 0; id < kVocab; ++id) {
    weights.push_back(std::pow(1.0 + static_cast<double>((3 * id + 2 * last + shift) % kVocab), power));
  }
  return Distribution::of_all(std::move(weights));
}

TargetModel target_model(double power) {
  return [power](std::span<const TokenId> tokens, std::size_t drafted) {
    std::vector<Distribution> all;
    for (std::size_t i = 0; i <= drafted; ++i) {
      all.push_back(after(tokens.first(tokens.size() - drafted + i), power, 0));
    }
    return all;
  };
}

/// Counts of all texts of two tokens against the target's probabilities for them.
double deviations(const DraftModel& draft, double power, std::size_t drafts) {
  std::vector<double> expected;
  for (TokenId first = 0; first < static_cast<TokenId>(kVocab); ++first) {
    for (TokenId second = 0; second < static_cast<TokenId>(kVocab); ++second) {
      const TokenId text[] = {first};
      expected.push_back(after({}, power, 0)[first] * after(text, power, 0)[second]);
    }
  }
  std::vector<std::size_t> counts(expected.size());
  RandomStream random(7);
  for (int i = 0; i < 60000; ++i) {
    std::vector<TokenId> text;
    speculative_sample(text, 2, draft, target_model(power), random, {.drafts = drafts});
    ++counts[static_cast<std::size_t>(text[0]) * kVocab + static_cast<std::size_t>(text[1])];
  }
  return testing::chi_square_deviations(counts, expected);
}

TEST(Speculative, IsLosslessForEveryDraft) {
  const DraftModel same = [](std::span<const TokenId> tokens) { return after(tokens, 1.0, 0); };
  const DraftModel flat = [](std::span<const TokenId> tokens) { return after(tokens, 0.0, 0); };
  const DraftModel other = [](std::span<const TokenId> tokens) { return after(tokens, 2.0, 3); };
  const DraftModel argmax = [](std::span<const TokenId> tokens) {
    const Distribution full = after(tokens, 1.0, 1);
    TokenId best = 0;
    for (TokenId id = 1; id < static_cast<TokenId>(kVocab); ++id) {
      if (full[id] > full[best]) best = id;
    }
    return Distribution::certain(best);
  };
  const DraftModel few = [](std::span<const TokenId>) { return Distribution::of_some({1, 3}, {0.9, 0.1}); };
  for (const DraftModel& draft : {same, flat, other, argmax, few}) {
    for (const std::size_t drafts : {1U, 2U, 4U}) EXPECT_LT(deviations(draft, 1.0, drafts), 4.0) << drafts;
  }
}

TEST(Speculative, IsLosslessWhereTheTargetAloneIsTempered) {
  const DraftModel untempered = [](std::span<const TokenId> tokens) { return after(tokens, 1.0, 0); };
  EXPECT_LT(deviations(untempered, 3.0, 3), 4.0);
}

TEST(Speculative, TheTestSeesAWrongRule) {
  std::vector<double> expected;
  for (TokenId id = 0; id < static_cast<TokenId>(kVocab); ++id) expected.push_back(after({}, 1.0, 0)[id]);
  RandomStream random(7);
  std::vector<std::size_t> counts(kVocab);
  for (int i = 0; i < 60000; ++i) {
    const Distribution p = after({}, 0.0, 0);
    const Distribution q = after({}, 1.0, 0);
    const TokenId x = p.draw(random.uniform());
    // Drawing from q instead of the residual is the common mistake.
    const bool accepted = random.uniform() * p[x] < q[x];
    ++counts[static_cast<std::size_t>(accepted ? x : q.draw(random.uniform()))];
  }
  EXPECT_GT(testing::chi_square_deviations(counts, expected), 8.0);
}

TEST(Speculative, EqualModelsAcceptEverything) {
  std::vector<TokenId> text;
  RandomStream random(1);
  const DraftModel draft = [](std::span<const TokenId> tokens) { return after(tokens, 1.0, 0); };
  const SpeculativeReport report = speculative_sample(text, 500, draft, target_model(1.0), random);
  EXPECT_EQ(text.size(), 500U);
  EXPECT_EQ(report.produced, 500U);
  EXPECT_EQ(report.rounds, 100U);
  EXPECT_EQ(report.accepted, report.drafted);
  EXPECT_DOUBLE_EQ(report.acceptance_rate(), 1.0);
  EXPECT_GT(report.predicted_seconds(500), 0.0);
}

TEST(Speculative, ReportsTheAcceptanceRateOfThePaper) {
  SpeculativeReport report;
  report.drafts = 4;
  report.rounds = 10;
  report.drafted = 40;
  report.accepted = 20;
  report.given = 30;
  report.draft_seconds = 0.4;
  report.target_seconds = 1.0;
  EXPECT_DOUBLE_EQ(report.acceptance_rate(), 0.6);
  // N/(r(K+1))·(K·t_draft + t_target) = 90/3·(4·0.01 + 0.1)
  EXPECT_NEAR(report.predicted_seconds(90), 4.2, 1e-9);
}

TEST(Speculative, StopsAtTheEndToken) {
  const DraftModel draft = [](std::span<const TokenId> tokens) { return after(tokens, 1.0, 0); };
  RandomStream random(3);
  for (int i = 0; i < 50; ++i) {
    std::vector<TokenId> text = {4};
    const SpeculativeReport report =
        speculative_sample(text, 40, draft, target_model(1.0), random, {.drafts = 3, .end = 2});
    EXPECT_EQ(report.produced + 1, text.size());
    for (std::size_t t = 1; t + 1 < text.size(); ++t) EXPECT_NE(text[t], 2);
    if (text.size() < 41) {
      EXPECT_EQ(text.back(), 2);
    }
  }
}

TEST(Speculative, AnyNumberOfTokensMayBeAskedFor) {
  const DraftModel draft = [](std::span<const TokenId> tokens) { return after(tokens, 1.0, 0); };
  const std::size_t most = std::numeric_limits<std::size_t>::max();
  RandomStream random(3);
  for (int i = 0; i < 50; ++i) {
    std::vector<TokenId> text = {4, 1};
    const SpeculativeReport report =
        speculative_sample(text, most, draft, target_model(1.0), random, {.drafts = 3, .end = 2});
    ASSERT_EQ(report.produced + 2, text.size());
    for (std::size_t t = 2; t + 1 < text.size(); ++t) EXPECT_NE(text[t], 2);
    EXPECT_EQ(text.back(), 2);
  }
}

TEST(Speculative, VerifiesADraftOfNoProbabilityNever) {
  RandomStream random(1);
  const Distribution p = Distribution::of_some({1}, {1.0});
  EXPECT_THROW(verify_draft(0, p, after({}, 1.0, 0), random), std::invalid_argument);
}

TEST(Speculative, AnEmptyResidualIsDrawnFromTheTarget) {
  // q is nowhere above p once rounded, and gives the draft nothing.
  const Distribution p = Distribution::of_some({0, 1}, {1.0, 1e-320});
  const Distribution q = Distribution::certain(0);
  RandomStream random(1);
  for (int i = 0; i < 100; ++i) {
    const DraftVerdict verdict = verify_draft(1, p, q, random);
    EXPECT_FALSE(verdict.accepted);
    EXPECT_EQ(verdict.token, 0);
  }
}

TEST(Speculative, RefusesUnusableModels) {
  const DraftModel draft = [](std::span<const TokenId> tokens) { return after(tokens, 1.0, 0); };
  const TargetModel wrong = [](std::span<const TokenId> tokens, std::size_t drafted) {
    return std::vector<Distribution>(drafted, after(tokens, 1.0, 0));
  };
  std::vector<TokenId> text;
  RandomStream random(1);
  EXPECT_THROW(speculative_sample(text, 5, draft, wrong, random), std::invalid_argument);
  EXPECT_THROW(speculative_sample(text, 5, draft, target_model(1.0), random, {.drafts = 0}),
               std::invalid_argument);
  EXPECT_TRUE(text.empty());
  const SpeculativeReport none = speculative_sample(text, 0, draft, target_model(1.0), random);
  EXPECT_EQ(none.rounds, 0U);
  EXPECT_EQ(none.acceptance_rate(), 0.0);
}

}  // namespace
}  // namespace topksoftmax
