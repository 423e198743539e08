// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/beam_search.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "support/layers.hpp"
#include "support/reference.hpp"
#include "support/wta_reference.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/decoding/penalties.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/parallel/thread_pool.hpp"
#include "topksoftmax/shortlist/build.hpp"
#include "topksoftmax/shortlist/shortlist.hpp"
#include "topksoftmax/wta/build.hpp"
#include "topksoftmax/wta/wta_lsh.hpp"

namespace topksoftmax {
namespace {

constexpr Eigen::Index kDim = 6;

/// A model whose context is a mix of everything read: h = tanh(0.6·h + row of the token).
class Model {
 public:
  Model(Eigen::Index vocab, unsigned seed)
      : layer(testing::random_layer(vocab, kDim, seed)),
        embedding_(testing::random_matrix(vocab, kDim, seed + 5)) {}

  Eigen::VectorXf read(const Eigen::VectorXf& h, TokenId token) const {
    return (0.6F * h + embedding_.row(token).transpose()).array().tanh();
  }

  /// Reads rows as beam search hands them out.
  BeamStep step(std::size_t sentences) {
    states_ = RowMajorMatrix::Zero(static_cast<Eigen::Index>(sentences), kDim);
    return [this](std::span<const BeamRow> rows) {
      RowMajorMatrix next(static_cast<Eigen::Index>(rows.size()), kDim);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        next.row(static_cast<Eigen::Index>(i)) =
            read(states_.row(static_cast<Eigen::Index>(rows[i].parent)), rows[i].token);
      }
      states_ = std::move(next);
      return Contexts::of(states_);
    };
  }

  SoftmaxLayer layer;

 private:
  RowMajorMatrix embedding_;
  RowMajorMatrix states_;
};

struct Text {
  std::vector<TokenId> tokens;
  double log_prob;
};

/// Every text that ends by `end` or has max_length tokens, in double precision; tokens that a text has
/// written before lose `presence` of their logits.
void write_all(const Model& model, const Eigen::VectorXf& h, std::size_t max_length, TokenId end,
               double presence, Text text, std::vector<Text>& all) {
  testing::Reference reference(model.layer, h);
  double sum = 0.0;
  for (std::size_t id = 0; id < reference.logits.size(); ++id) {
    const bool again = std::count(text.tokens.begin(), text.tokens.end(), static_cast<TokenId>(id)) != 0;
    if (again) reference.logits[id] -= presence;
    sum += std::exp(reference.logits[id]);
  }
  for (std::size_t id = 0; id < reference.logits.size(); ++id) {
    const auto token = static_cast<TokenId>(id);
    Text longer = text;
    longer.tokens.push_back(token);
    longer.log_prob += reference.logits[id] - std::log(sum);
    if (token == end || longer.tokens.size() == max_length) {
      all.push_back(longer);
    } else {
      write_all(model, model.read(h, token), max_length, end, presence, longer, all);
    }
  }
}

TEST(BeamSearch, AWideBeamIsAnExhaustiveSearch) {
  for (const double alpha : {0.0, 0.6, 1.0}) {
    for (unsigned seed = 1; seed <= 4; ++seed) {
      Model model(5, seed);
      const Eigen::VectorXf start = model.read(Eigen::VectorXf::Zero(kDim), 2);
      std::vector<Text> all;
      write_all(model, start, 4, 0, 0.0, {{}, 0.0}, all);
      const auto score = [alpha](const Text& text) {
        return text.log_prob / std::pow(static_cast<double>(text.tokens.size()), alpha);
      };
      std::stable_sort(all.begin(), all.end(),
                       [&](const Text& a, const Text& b) { return score(a) > score(b); });
      const Exact exact(model.layer);
      const TokenId starts[] = {2};
      const auto found = beam_search(exact, starts, model.step(1),
                                     {.beam = 700, .n_best = 5, .max_length = 4, .length_penalty = alpha});
      ASSERT_EQ(found[0].size(), 5U);
      for (std::size_t i = 0; i < 5; ++i) {
        EXPECT_EQ(found[0][i].tokens, all[i].tokens);
        EXPECT_NEAR(found[0][i].log_prob, all[i].log_prob, 1e-4);
        EXPECT_NEAR(found[0][i].score, score(all[i]), 1e-4);
        EXPECT_EQ(found[0][i].ended, all[i].tokens.back() == 0);
      }
    }
  }
}

TEST(BeamSearch, AHypothesisHasPenaltiesOfItsOwn) {
  for (unsigned seed = 1; seed <= 4; ++seed) {
    Model model(5, seed);
    std::vector<Text> all;
    write_all(model, model.read(Eigen::VectorXf::Zero(kDim), 2), 4, 0, 1.5, {{}, 0.0}, all);
    std::stable_sort(all.begin(), all.end(),
                     [](const Text& a, const Text& b) { return a.log_prob > b.log_prob; });
    const auto certified = Certified::build(model.layer);
    const Exact exact(model.layer);
    for (const TopKSoftmax* head :
         {static_cast<const TopKSoftmax*>(&exact), static_cast<const TopKSoftmax*>(certified.get())}) {
      PenaltyBiases penalise({.presence = 1.5});
      const Workspace workspace;
      const BeamQuery query_of = [&](const BeamRow& row, std::span<const TokenId> written,
                                     std::span<const float> h) {
        EXPECT_EQ(row.sentence, 0U);
        EXPECT_EQ(row.token, written.empty() ? 2 : written.back());
        return QueryOptions{.logit_bias = penalise(*head, h, written, {}, workspace), .log_z_tolerance = 0.0};
      };
      const TokenId starts[] = {2};
      const auto found = beam_search(*head, starts, model.step(1),
                                     {.beam = 700, .n_best = 5, .max_length = 4, .query_of = query_of});
      ASSERT_EQ(found[0].size(), 5U);
      for (std::size_t i = 0; i < 5; ++i) {
        EXPECT_EQ(found[0][i].tokens, all[i].tokens);
        EXPECT_NEAR(found[0][i].log_prob, all[i].log_prob, 1e-4);
      }
    }
  }
}

// Options that say nothing of log Z leave it as exact as those of the search have it.
TEST(BeamSearch, AQueryOfAHypothesisNeedsNotAskForAnExactLogZ) {
  Model model(600, 3);
  const auto certified = Certified::build(model.layer);
  const BeamQuery query_of = [](const BeamRow&, std::span<const TokenId>, std::span<const float>) {
    return QueryOptions{};
  };
  const TokenId starts[] = {1};
  BeamSearchOptions options = {.beam = 4, .n_best = 4, .max_length = 6};
  const auto expected = beam_search(Exact(model.layer), starts, model.step(1), options);
  options.query_of = query_of;
  const auto found = beam_search(*certified, starts, model.step(1), options);
  ASSERT_EQ(found[0].size(), expected[0].size());
  for (std::size_t i = 0; i < found[0].size(); ++i) {
    EXPECT_EQ(found[0][i].tokens, expected[0][i].tokens);
    EXPECT_NEAR(found[0][i].log_prob, expected[0][i].log_prob, 1e-4);
  }
}

// No word twice: the mask is the hypothesis' own, and nothing is left to write at last.
TEST(BeamSearch, AHypothesisHasAMaskOfItsOwn) {
  Model model(6, 3);
  const Exact exact(model.layer);
  TokenMask mask(6);
  const BeamQuery query_of = [&mask](const BeamRow&, std::span<const TokenId> written,
                                     std::span<const float>) {
    mask = TokenMask::all(6);
    for (const TokenId token : written) mask.forbid(token);
    mask.forbid(0);  // the end, so that no text ends
    return QueryOptions{.allowed = mask};
  };
  const TokenId starts[] = {1, 2};
  const auto found =
      beam_search(exact, starts, model.step(2),
                  {.beam = 4, .n_best = 4, .max_length = 5, .query_of = query_of}, ThreadPool(2));
  for (const auto& sentence : found) {
    ASSERT_EQ(sentence.size(), 4U);
    for (const Hypothesis& one : sentence) {
      std::vector<TokenId> tokens = one.tokens;
      std::sort(tokens.begin(), tokens.end());
      EXPECT_EQ(tokens, (std::vector<TokenId>{1, 2, 3, 4, 5}));
    }
  }
  const auto none = beam_search(exact, starts, model.step(2),
                                {.beam = 4, .n_best = 4, .max_length = 6, .query_of = query_of});
  EXPECT_TRUE(none[0].empty());
  EXPECT_TRUE(none[1].empty());
}

TEST(BeamSearch, ABeamOfOneIsGreedy) {
  Model model(40, 8);
  const Exact exact(model.layer);
  const TokenId starts[] = {1};
  const auto found = beam_search(exact, starts, model.step(1), {.beam = 1, .max_length = 12, .end = 7});
  std::vector<TokenId> greedy;
  Eigen::VectorXf h = model.read(Eigen::VectorXf::Zero(kDim), 1);
  while (greedy.size() < 12) {
    greedy.push_back(exact.query(h).ids[0]);
    if (greedy.back() == 7) break;
    h = model.read(h, greedy.back());
  }
  EXPECT_EQ(found[0][0].tokens, greedy);
  EXPECT_TRUE(std::isnan(found[0][0].log_prob));
  const auto scored = beam_search(exact, starts, model.step(1),
                                  {.beam = 1, .max_length = 12, .end = 7, .query = {.probabilities = true}});
  EXPECT_EQ(scored[0][0].tokens, greedy);
  EXPECT_LT(scored[0][0].log_prob, 0.0);
}

TEST(BeamSearch, SentencesOfABatchDoNotMix) {
  Model model(60, 3);
  const Exact exact(model.layer);
  const TokenId starts[] = {1, 2, 3, 4, 5};
  const BeamSearchOptions options = {.beam = 4, .n_best = 3, .max_length = 10, .length_penalty = 1.0};
  const auto together = beam_search(exact, starts, model.step(5), options, ThreadPool(3));
  for (std::size_t s = 0; s < 5; ++s) {
    const auto alone = beam_search(exact, std::span(starts).subspan(s, 1), model.step(1), options);
    ASSERT_EQ(alone[0].size(), together[s].size());
    for (std::size_t i = 0; i < alone[0].size(); ++i) {
      EXPECT_EQ(alone[0][i].tokens, together[s][i].tokens);
      EXPECT_EQ(alone[0][i].log_prob, together[s][i].log_prob);
    }
  }
}

TEST(BeamSearch, ACertifiedHeadFindsWhatTheExactOneDoes) {
  Model model(500, 3);
  const Exact exact(model.layer);
  const auto certified = Certified::build(model.layer, testing::clustered_contexts(300, kDim, 5, 4), {});
  const TokenId starts[] = {1, 2, 3};
  const BeamSearchOptions options = {.beam = 4, .n_best = 3, .max_length = 8, .length_penalty = 0.5};
  const auto expected = beam_search(exact, starts, model.step(3), options);
  const auto found = beam_search(*certified, starts, model.step(3), options);
  for (std::size_t s = 0; s < 3; ++s) {
    ASSERT_EQ(found[s].size(), expected[s].size());
    for (std::size_t i = 0; i < found[s].size(); ++i) EXPECT_EQ(found[s][i].tokens, expected[s][i].tokens);
  }
}

TEST(BeamSearch, WordsOutsideTheCandidatesHaveNoProbability) {
  Model model(60, 3);
  std::vector<std::int64_t> counts(60);
  std::iota(counts.begin(), counts.end(), 0);
  const auto head = Shortlist::build(model.layer, {.top_frequent = 10, .counts = counts});
  const auto is_candidate = [](TokenId id) { return id >= 50; };

  const TokenId starts[] = {1, 2, 3, 4, 5};
  const auto found = beam_search(*head, starts, model.step(5), {.beam = 5, .n_best = 5, .max_length = 4});
  int outside = 0;  // sentences whose likeliest word is no candidate
  for (std::size_t s = 0; s < 5; ++s) {
    const Eigen::VectorXf start = model.read(Eigen::VectorXf::Zero(kDim), starts[s]);
    const std::vector<double> logits = testing::Reference(model.layer, start).logits;
    const auto likeliest = std::max_element(logits.begin(), logits.end()) - logits.begin();
    outside += is_candidate(static_cast<TokenId>(likeliest)) ? 0 : 1;
    ASSERT_EQ(found[s].size(), 5U);
    for (const Hypothesis& one : found[s]) {
      double log_prob = 0.0;
      Eigen::VectorXf h = start;
      for (const TokenId token : one.tokens) {
        const auto among_candidates = testing::Reference(model.layer, h).edited(is_candidate, {});
        log_prob += among_candidates.logits[static_cast<std::size_t>(token)] - among_candidates.log_z;
        h = model.read(h, token);
      }
      EXPECT_NEAR(one.log_prob, log_prob, 1e-4);
    }
  }
  EXPECT_GT(outside, 0);
}

/// The texts that sentences get of the likeliest words, of a list that they all share: those whose rows agree
/// with the context of one of them in `threshold` bands.
std::vector<Text> greedy_by_shared_lists(const Model& model, std::span<const TokenId> starts,
                                         const testing::WtaReference& hashes, std::size_t threshold,
                                         std::size_t length) {
  std::vector<Text> texts(starts.size(), {{}, 0.0});
  std::vector<Eigen::VectorXf> contexts;
  for (const TokenId start : starts) contexts.push_back(model.read(Eigen::VectorXf::Zero(kDim), start));
  const auto goes_on = [&](std::size_t s) { return texts[s].tokens.empty() || texts[s].tokens.back() != 0; };
  for (std::size_t written = 0; written < length; ++written) {
    std::vector<bool> listed(model.layer.vocab());
    for (std::size_t s = 0; s < starts.size(); ++s) {
      if (!goes_on(s)) continue;
      const std::vector<std::size_t> hits = hashes.hits(model.layer, contexts[s]);
      for (std::size_t id = 0; id < hits.size(); ++id) listed[id] = listed[id] || hits[id] >= threshold;
    }
    const auto is_listed = [&](TokenId id) { return listed[static_cast<std::size_t>(id)]; };
    for (std::size_t s = 0; s < starts.size(); ++s) {
      if (!goes_on(s)) continue;
      const auto reference = testing::Reference(model.layer, contexts[s]).edited(is_listed, {});
      const auto best = std::max_element(reference.logits.begin(), reference.logits.end());
      texts[s].tokens.push_back(static_cast<TokenId>(best - reference.logits.begin()));
      texts[s].log_prob += *best - reference.log_z;
      contexts[s] = model.read(contexts[s], texts[s].tokens.back());
    }
  }
  return texts;
}

TEST(BeamSearch, ABatchSharesItsCandidateList) {
  Model model(200, 3);
  const WtaHashOptions hash = {.K = 4, .units_per_band = 2, .bands = 40};
  const testing::WtaReference hashes(kDim, hash);
  constexpr std::size_t kThreshold = 6;
  const auto head = WtaLsh::build(model.layer, {.hash = hash, .threshold = kThreshold, .top_frequent = 0});
  const BeamSearchOptions options = {.beam = 1, .max_length = 6, .query = {.probabilities = true}};
  const auto expect_shared = [&](std::span<const TokenId> starts) {
    const auto found = beam_search(*head, starts, model.step(starts.size()), options);
    const std::vector<Text> expected =
        greedy_by_shared_lists(model, starts, hashes, kThreshold, options.max_length);
    for (std::size_t s = 0; s < starts.size(); ++s) {
      EXPECT_EQ(found[s][0].tokens, expected[s].tokens);
      EXPECT_NEAR(found[s][0].log_prob, expected[s].log_prob, 1e-4);
    }
    return found;
  };
  const TokenId starts[] = {1, 2, 3};
  const auto together = expect_shared(starts);
  for (std::size_t s = 0; s < 3; ++s) {
    const auto alone = expect_shared(std::span(starts).subspan(s, 1));
    EXPECT_GT(std::abs(together[s][0].log_prob - alone[0][0].log_prob), 0.01) << "the others' words count";
  }
}

TEST(BeamSearch, WritesWhatTheMaskAllows) {
  Model model(60, 3);
  const Exact exact(model.layer);
  TokenMask mask(60);
  for (const TokenId id : {0, 4, 9, 11}) mask.allow(id);
  const TokenId starts[] = {1, 2};
  const auto found = beam_search(exact, starts, model.step(2),
                                 {.beam = 3, .n_best = 3, .max_length = 6, .query = {.allowed = mask}});
  for (const auto& sentence : found) {
    ASSERT_FALSE(sentence.empty());
    for (const Hypothesis& one : sentence) {
      for (const TokenId token : one.tokens) EXPECT_TRUE(mask.allows(token));
    }
  }
}

TEST(BeamSearch, ABeamMayBeWiderThanAnyNumberOfTexts) {
  Model model(5, 1);
  const Exact exact(model.layer);
  const TokenId starts[] = {1};
  BeamSearchOptions options = {.beam = 200, .n_best = 200, .max_length = 3};
  const auto texts = beam_search(exact, starts, model.step(1), options);
  EXPECT_EQ(texts[0].size(), 1 + 4 + 16 * 5);
  options.beam = std::numeric_limits<std::size_t>::max();
  const auto same = beam_search(exact, starts, model.step(1), options);
  ASSERT_EQ(same[0].size(), texts[0].size());
  for (std::size_t i = 0; i < texts[0].size(); ++i) EXPECT_EQ(same[0][i].tokens, texts[0][i].tokens) << i;
}

TEST(BeamSearch, NoSentenceIsNothing) {
  Model model(5, 1);
  const Exact exact(model.layer);
  EXPECT_TRUE(beam_search(exact, {}, model.step(0), {}).empty());
}

TEST(BeamSearch, RefusesUnusableOptionsAndSteps) {
  Model model(5, 1);
  const Exact exact(model.layer);
  const TokenId starts[] = {1};
  const auto search = [&](const BeamSearchOptions& options) {
    beam_search(exact, starts, model.step(1), options);
  };
  EXPECT_THROW(search({.beam = 0}), std::invalid_argument);
  EXPECT_THROW(search({.n_best = 0}), std::invalid_argument);
  EXPECT_THROW(search({.max_length = 0}), std::invalid_argument);
  EXPECT_THROW(search({.length_penalty = -1.0}), std::invalid_argument);
  EXPECT_THROW(search({.end = 5}), std::invalid_argument);
  EXPECT_THROW(search({.end = -1}), std::invalid_argument);
  const RowMajorMatrix none(0, kDim);
  EXPECT_THROW(beam_search(exact, starts, [&](std::span<const BeamRow>) { return Contexts::of(none); }, {}),
               std::invalid_argument);
}

}  // namespace
}  // namespace topksoftmax
