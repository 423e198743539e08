// SPDX-License-Identifier: Apache-2.0
#include "fuzz/fuzzed_head.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <stdexcept>
#include <vector>

#include "fuzz/targets.hpp"
#include "support/reference.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/exact.hpp"

namespace topksoftmax::fuzz {
namespace {

using testing::Backend;
using testing::Reference;

constexpr std::size_t kMostTokens = 300;

/// A matrix of a few values in random places, or of normally distributed ones; some places of their own.
RowMajorMatrix matrix(Choices& choices, std::size_t rows, std::size_t cols) {
  RowMajorMatrix m(static_cast<Eigen::Index>(rows), static_cast<Eigen::Index>(cols));
  std::mt19937 random(choices.byte());
  if (choices.yes()) {
    std::normal_distribution<float> normal(0.0F,
                                           std::ldexp(1.0F, static_cast<int>(choices.between(0, 6)) - 3));
    for (Eigen::Index i = 0; i < m.size(); ++i) m.data()[i] = normal(random);
  } else {
    std::vector<float> palette(choices.between(1, 16));
    for (float& value : palette) value = choices.weight();
    for (Eigen::Index i = 0; i < m.size(); ++i) m.data()[i] = palette[random() % palette.size()];
  }
  for (std::size_t n = choices.between(0, 3); n > 0 && m.size() > 0; --n) {
    const std::size_t place = choices.between(0, static_cast<std::size_t>(m.size()) - 1);
    m.data()[place] = choices.value();
  }
  return m;
}

/// A dimension: most often a small one, which is fast, or one that fills several vectors and half a one.
std::size_t dimension(Choices& choices) {
  constexpr std::uint8_t kWide = 224;
  const std::uint8_t choice = choices.byte();
  return choice < kWide ? 1U + choice % 24U : 25U + 2U * static_cast<std::size_t>(choice - kWide);
}

/// Options, and what they refer to.
struct Question {
  std::vector<std::uint64_t> mask;
  std::vector<TokenBias> biases;
  QueryOptions options;
  bool compares_logits = false;  ///< with float64, which takes longer than all else

  Question(Choices& choices, std::size_t vocab) {
    const std::uint8_t kind = choices.byte();
    options.k = choices.between(1, (kind & 1) != 0 ? vocab + 2 : 8);
    if ((kind & 2) != 0) {
      mask.assign((vocab + 63) / 64, 0);
      std::mt19937 random(choices.byte());
      const std::size_t share = choices.between(0, 8);
      for (std::size_t t = 0; t < vocab; ++t) {
        if (random() % 8 < share) mask[t / 64] |= std::uint64_t{1} << (t % 64);
      }
      if (choices.yes()) mask.back() |= ~std::uint64_t{0} << (vocab % 64 == 0 ? 63 : vocab % 64);
      options.allowed = mask;
    }
    if ((kind & 4) != 0) {
      std::set<TokenId> ids;
      for (std::size_t n = choices.between(1, 6); n > 0; --n) {
        ids.insert(static_cast<TokenId>(choices.between(0, vocab - 1)));
      }
      for (const TokenId id : ids) biases.push_back({id, 8.0F * choices.weight()});
      for (TokenBias& bias : biases) {
        if (!std::isfinite(bias.bias)) bias.bias = 1.0F;
      }
      options.logit_bias = biases;
    }
    if ((kind & 8) != 0) options.effort = choices.yes() ? QueryOptions::full_effort : choices.between(1, 40);
    options.probabilities = (kind & 16) == 0;
    compares_logits = kind >= 192 && biases.empty();
    if ((kind & 32) != 0) options.log_z_tolerance = 0.25 * static_cast<double>(choices.between(0, 8));
  }
  Question(const Question&) = delete;
  Question& operator=(const Question&) = delete;

  bool allows(TokenId id) const {
    const auto t = static_cast<std::size_t>(id);
    return mask.empty() || (mask[t / 64] >> (t % 64) & 1) != 0;
  }
};

bool near(double a, double b) {
  return a == b || std::abs(a - b) <= 1e-3 + 1e-5 * std::max(std::abs(a), std::abs(b));
}

void check_log_z(const TopK& answer, const TopK& truth, const QueryOptions& options) {
  require((answer.normalizer == Normalizer::none) == !options.probabilities,
          "log Z is there where asked for");
  if (!options.probabilities) return;
  require(answer.log_z_low <= answer.log_z && answer.log_z <= answer.log_z_high,
          "log Z lies in its interval");
  const bool below = answer.log_z_low <= truth.log_z || near(answer.log_z_low, truth.log_z);
  const bool above = answer.log_z_high >= truth.log_z || near(answer.log_z_high, truth.log_z);
  if (answer.normalizer == Normalizer::exact) require(near(answer.log_z, truth.log_z), "log Z is exact");
  if (answer.normalizer == Normalizer::candidates) require(below, "candidates are some of the tokens");
  if (answer.normalizer == Normalizer::learned) {
    require(std::isfinite(answer.log_z), "what was learned is a number");
    require(options.allowed.empty(), "nothing was learned of masks");
  }
  if (answer.normalizer == Normalizer::interval) {
    require(below && above, "the interval holds log Z");
    require(answer.log_z_high - answer.log_z_low <= options.log_z_tolerance,
            "the interval is as narrow as asked for");
  }
}

/// Compares an answer with that of Exact for every token.
void check(const Backend& backend, bool certifies, const Question& question, std::size_t vocab,
           const TopK& answer, const TopK& all) {
  const QueryOptions& options = question.options;
  require(answer.size() == std::min(options.k, all.size()),
          "there are as many tokens as asked for and allowed");
  require(answer.logits.size() == answer.size(), "every token has its logit");
  std::vector<float> exact(vocab, std::numeric_limits<float>::quiet_NaN());  // which equals nothing
  for (std::size_t i = 0; i < all.size(); ++i) exact[static_cast<std::size_t>(all.ids[i])] = all.logits[i];
  for (std::size_t i = 0; i < answer.size(); ++i) {
    require(question.allows(answer.ids[i]), "only allowed tokens are answered");
    float& expected = exact[static_cast<std::size_t>(answer.ids[i])];
    require(answer.logits[i] == expected, "every logit is exact, bit for bit, and no token comes twice");
    expected = std::numeric_limits<float>::quiet_NaN();
    require(
        i == 0 || ranks_before({answer.logits[i - 1], answer.ids[i - 1]}, {answer.logits[i], answer.ids[i]}),
        "tokens are in order");
  }
  require(answer.certified == (answer.confidence == 1.0), "what is certified is certain");
  require(!certifies || answer.certified, "who certifies answers certifies all");
  const bool is_exact = backend.description.traits.exact;
  require(!is_exact || answer.confidence > 0.99, "an exact backend is exact, if but for a probability");
  const bool exhausted =
      backend.description.traits.exhaustible && options.effort == QueryOptions::full_effort;
  if (answer.certified || is_exact || exhausted) {
    require(std::equal(answer.ids.begin(), answer.ids.end(), all.ids.begin()), "the top-k is exact");
  }
  check_log_z(answer, all, options);
}

void check_exact_logits(const SoftmaxLayer& layer, const Eigen::VectorXf& h, const TopK& all) {
  const Reference reference(layer, h);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto token = static_cast<std::size_t>(all.ids[i]);
    if (reference.magnitudes[token] > 1e37) continue;  // may leave float's range on the way
    require(std::abs(static_cast<double>(all.logits[i]) - reference.logits[token]) <=
                reference.tolerance(token, layer.dim()),
            "a logit is the dot product, but for rounding");
  }
}

bool same(const TopK& a, const TopK& b) {
  const auto equal = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  return a.ids == b.ids && a.logits == b.logits && equal(a.log_z, b.log_z) && a.certified == b.certified;
}

/// One question to one context; what is not finite must be refused.
void ask_once(const Backend& backend, const TopKSoftmax& head, const TopKSoftmax& exact,
              const Eigen::VectorXf& h, const Question& question, Workspace& workspace, TopK& answer) {
  const TopK before = answer;
  try {
    head.query(h, question.options, workspace, answer);
  } catch (const std::invalid_argument&) {
    require(!h.allFinite(), "a good query is answered");
    require(same(answer, before), "an answer that was refused is untouched");
    return;
  }
  require(h.allFinite(), "a context that is not finite is refused");
  QueryOptions every = question.options;
  every.k = head.layer().vocab();
  every.probabilities = true;
  every.effort = 0;
  const TopK all = exact.query(h, every);
  if (question.compares_logits) check_exact_logits(head.layer(), h, all);
  check(backend, head.certifies(), question, head.layer().vocab(), answer, all);
}

void ask_batch(const Backend& backend, const TopKSoftmax& head, const RowMajorMatrix& H, std::size_t threads,
               const Question& question) {
  std::vector<Workspace> workspaces(threads);
  std::vector<TopK> answers(static_cast<std::size_t>(H.rows()));
  try {
    head.query_batch(H, question.options, workspaces, answers);
  } catch (const std::invalid_argument&) {
    require(!H.allFinite(), "a good batch is answered");
    return;
  }
  require(H.allFinite(), "a batch that is not finite is refused");
  for (std::size_t q = 0; q < answers.size(); ++q) {
    const TopK alone = head.query(H.row(static_cast<Eigen::Index>(q)), question.options);
    if (!backend.description.traits.shares_batches) {
      require(same(answers[q], alone), "a batch gives the answers of single queries");
      continue;
    }
    require(answers[q].size() == alone.size(), "a batch answers as many tokens as single queries");
    for (std::size_t n = 0; n < alone.size(); ++n) {
      require(answers[q].logits[n] >= alone.logits[n], "a shared list may only lift an answer");
    }
  }
}

}  // namespace

FuzzedHead::FuzzedHead(const testing::Backend& backend, Choices& choices) : backend_(backend) {
  const std::size_t vocab = choices.between(1, kMostTokens);
  const std::size_t dim = dimension(choices);
  W_ = matrix(choices, vocab, dim);
  if (choices.yes()) b_ = matrix(choices, 1, vocab).row(0);
  const RowMajorMatrix contexts = matrix(choices, choices.between(0, 60), dim);
  try {
    const SoftmaxLayer layer = SoftmaxLayer::borrow(W_, b_);
    require(W_.allFinite() && b_.allFinite(), "a layer that is not finite is refused");
    exact_ = Exact::make(layer);
    head_ = backend_.make(layer, contexts);
  } catch (const Error&) {
    const bool good = W_.allFinite() && b_.allFinite() && contexts.allFinite() && contexts.rows() > 0;
    require(!good, "a good layer is accepted");
  }
}

void FuzzedHead::ask(Choices& choices) const {
  const auto vocab = static_cast<std::size_t>(W_.rows());
  const auto dim = static_cast<std::size_t>(W_.cols());
  Workspace workspace;
  TopK answer;
  for (int round = 0; round < 8 && choices.left(); ++round) {
    const Question question(choices, vocab);
    if (choices.byte() % 4 != 0) {
      const Eigen::VectorXf h = matrix(choices, 1, dim).row(0);
      ask_once(backend_, *head_, *exact_, h, question, workspace, answer);
    } else {
      const RowMajorMatrix H = matrix(choices, choices.between(1, 20), dim);
      ask_batch(backend_, *head_, H, choices.between(1, 3), question);
    }
  }
}

}  // namespace topksoftmax::fuzz
