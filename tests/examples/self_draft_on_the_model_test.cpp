// SPDX-License-Identifier: Apache-2.0
//
// The head as its own draft on the embedded language model: the text has the statistics of the full softmax.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "language_model_steps.hpp"
#include "lstm_model.hpp"
#include "support/statistics.hpp"
#include "topksoftmax/decoding/perplexity.hpp"
#include "topksoftmax/decoding/sampling.hpp"
#include "topksoftmax/decoding/self_draft.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/shortlist/build.hpp"
#include "topksoftmax/shortlist/shortlist.hpp"

namespace topksoftmax {
namespace {

using examples::LstmModel;
using examples::TextReader;

constexpr std::size_t kTexts = 1200;

/// The mean of some numbers, and how far it may be off (a standard error).
struct Mean {
  double value = 0.0;
  double error = 0.0;

  explicit Mean(const std::vector<double>& numbers) {
    const auto count = static_cast<double>(numbers.size());
    for (const double x : numbers) value += x / count;
    for (const double x : numbers) error += (x - value) * (x - value) / (count - 1.0);
    error = std::sqrt(error / count);
  }
};

TEST(SelfDraftOnTheModel, HasTheStatisticsOfExactSampling) {
  const LstmModel model(TOPKSOFTMAX_EXAMPLE_DATA);
  const SoftmaxLayer layer = model.layer();
  const auto draft = Shortlist::build(layer, {.top_frequent = 300});
  const Fused exact(layer);
  const std::vector<TokenId> beginning = {model.token("<eos>"), model.token("she"), model.token("was")};
  TextReader reader(model);
  const ContextModel contexts = [&](std::span<const TokenId> text, float* h) {
    std::copy_n(reader(text), model.dim(), h);
  };
  Workspace workspace;
  const auto surprise = [&](std::span<const TokenId> text) {
    return exact_log_prob(layer, reader(text.first(text.size() - 1)), layer.dim(), text.back(), workspace);
  };
  for (const SamplingOptions& sampling : {SamplingOptions{}, SamplingOptions{.top_p = 0.9}}) {
    // First words: counts against the distribution itself, the 30 most probable and all others.
    const Distribution first = distribution_of(
        exact.logits(Eigen::Map<const Eigen::VectorXf>(reader(beginning), model.dim()), {}, workspace),
        sampling);
    std::vector<TokenId> common;
    for (std::size_t i = 0; i < first.size(); ++i) common.push_back(first.id(i));
    std::stable_sort(common.begin(), common.end(), [&](TokenId a, TokenId b) { return first[a] > first[b]; });
    common.resize(30);
    std::vector<double> expected;
    for (const TokenId id : common) expected.push_back(first[id]);
    expected.push_back(1.0);
    for (std::size_t i = 0; i < common.size(); ++i) expected.back() -= expected[i];
    std::vector<std::size_t> counts(expected.size());

    // Second words: how surprising they are, against exact sampling.
    std::vector<double> drafted;
    std::vector<double> sampled;
    RandomStream random(3);
    Sampler sampler(sampling);
    for (std::size_t n = 0; n < kTexts; ++n) {
      std::vector<TokenId> text = beginning;
      self_draft(text, 2, *draft, contexts, random, {.sampling = sampling, .speculative = {.drafts = 2}});
      const auto found = std::find(common.begin(), common.end(), text[beginning.size()]);
      ++counts[static_cast<std::size_t>(found - common.begin())];
      drafted.push_back(surprise(text));
      text = beginning;
      for (int i = 0; i < 2; ++i) text.push_back(sampler.draw(exact, reader(text), layer.dim(), random).id);
      sampled.push_back(surprise(text));
    }
    EXPECT_LT(testing::chi_square_deviations(counts, expected), 4.0);
    const Mean ours(drafted);
    const Mean theirs(sampled);
    EXPECT_LT(std::abs(ours.value - theirs.value), 4.0 * std::hypot(ours.error, theirs.error));
  }
}

}  // namespace
}  // namespace topksoftmax
