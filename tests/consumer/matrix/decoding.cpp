// SPDX-License-Identifier: Apache-2.0
//
// Decodes with the form of the library that this file is compiled for. The model's next context depends on
// the last token alone: that of the contexts that the answers are known of.
#include <algorithm>
#include <cstddef>
#include <span>
#include <topksoftmax/contexts.hpp>
#include <topksoftmax/decoding/beam_search.hpp>
#include <topksoftmax/decoding/random_stream.hpp>
#include <topksoftmax/decoding/sampling.hpp>
#include <topksoftmax/decoding/self_draft.hpp>
#include <topksoftmax/fused.hpp>
#include <topksoftmax/l2s/build.hpp>
#include <utility>
#include <vector>

#include "answers.hpp"

using namespace topksoftmax;

namespace {

std::span<const float> context_after(const World& world, TokenId token) {
  return std::span(world.asked)
      .subspan(static_cast<std::size_t>(token) % World::kAsked * World::kDim, World::kDim);
}

void sample(const TopKSoftmax& head, const World& world, Answers& answers) {
  RandomStream random(1);
  Sampler sampler({.temperature = 2.0, .top_k = 20, .top_p = 0.9});
  for (std::size_t i = 0; i < World::kAsked; ++i) {
    const std::span<const float> h = context_after(world, static_cast<TokenId>(i));
    const SampledToken token = sampler.draw(head, h.data(), h.size(), random);
    answers.push_back({.of = "sampling",
                       .question = i,
                       .ids = {token.id},
                       .logits = {token.logit},
                       .low = token.log_prob,
                       .high = token.log_prob});
  }
}

void search(const TopKSoftmax& head, const World& world, Answers& answers) {
  std::vector<float> contexts;
  const BeamStep step = [&](std::span<const BeamRow> rows) -> Contexts {
    contexts.clear();
    for (const BeamRow& row : rows) {
      const std::span<const float> h = context_after(world, row.token);
      contexts.insert(contexts.end(), h.begin(), h.end());
    }
    return {contexts.data(), rows.size(), World::kDim, World::kDim};
  };
  const TokenId start[] = {1, 2, 3};
  const auto found = beam_search(head, start, step, {.beam = 3, .n_best = 2, .max_length = 6});
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const Hypothesis& text : found[i])
      answers.push_back({.of = "beam search",
                         .question = i,
                         .ids = text.tokens,
                         .low = text.log_prob,
                         .high = text.log_prob});
  }
}

void draft(const TopKSoftmax& head, const World& world, Answers& answers) {
  const ContextModel model = [&](std::span<const TokenId> text, float* h) {
    const std::span<const float> next = context_after(world, text.empty() ? 0 : text.back());
    std::copy(next.begin(), next.end(), h);
  };
  RandomStream random(2);
  std::vector<TokenId> text;
  self_draft(text, 40, head, model, random, {.sampling = {.temperature = 1.5}});
  answers.push_back({.of = "self draft", .ids = std::move(text)});
}

}  // namespace

Answers FORM::decoded(const World& world) {
  const SoftmaxLayer layer = SoftmaxLayer::borrow({.data = world.weights.data(),
                                                   .bias = world.biases.data(),
                                                   .count = World::kVocab,
                                                   .dim = World::kDim,
                                                   .stride = World::kDim},
                                                  static_cast<std::ptrdiff_t>(World::kVocab));
  const auto exact = Fused::make(layer);
  const Eigen::Map<const RowMajorMatrix> learned(world.learned.data(), World::kLearned, World::kDim);
  const auto screened = L2S::train_kmeans(layer, learned, {.clusters = 8, .budget = 120});
  Answers answers;
  sample(*exact, world, answers);
  search(*screened, world, answers);
  draft(*screened, world, answers);
  return answers;
}
