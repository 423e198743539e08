// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/perplexity.hpp"

#include <stdexcept>
#include <string>
#include <utility>

#include "screeners/svd_preview.hpp"
#include "topksoftmax/candidates.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/kernels/implementation.hpp"

namespace topksoftmax {
namespace {

void check_token(TokenId token, std::size_t vocab) {
  if (token >= 0 && static_cast<std::size_t>(token) < vocab) return;
  throw std::invalid_argument("log_prob: token " + std::to_string(token) +
                              " is not of the vocabulary; V = " + std::to_string(vocab));
}

double log_prob_of(const float* logits, std::size_t vocab, TokenId token) {
  const kernels::Implementation& kernel = kernels::active();
  kernels::LogSumExp sum;
  sum.max = kernel.max(logits, vocab);
  sum.sum = kernel.sum_exp(logits, vocab, sum.max);
  return static_cast<double>(logits[token]) - sum.value();
}

}  // namespace

double exact_log_prob(const SoftmaxLayer& layer, const float* h, std::size_t dim, TokenId token,
                      Workspace& workspace) {
  check_token(token, layer.vocab());
  const Exact exact(layer);
  return log_prob_of(exact.logits_batch(h, 1, dim, dim, {}, workspace).data(), layer.vocab(), token);
}

LowRankLogProb::LowRankLogProb(std::shared_ptr<const TopKSoftmax> head,
                               std::shared_ptr<const SvdPreview> outside)
    : head_(std::move(head)), outside_(std::move(outside)) {}

LowRankLogProb LowRankLogProb::build(std::shared_ptr<const TopKSoftmax> head, std::size_t rank) {
  if (head == nullptr) throw Error("perplexity: there is no head to take candidates from");
  const SoftmaxLayer& layer = head->layer();
  if (rank < 1 || rank > layer.dim()) {
    throw Error("perplexity: the rank is " + std::to_string(rank) +
                "; it must be between 1 and d = " + std::to_string(layer.dim()));
  }
  const std::vector<float> nowhere(layer.dim(), 0.0F);
  Workspace workspace;
  if (!head->candidates(nowhere.data(), nowhere.size(), {}, workspace)) {
    throw Error("perplexity: the backend " + std::string(head->name()) +
                " has no candidates; take exact_log_prob, or a backend that screens");
  }
  auto outside = std::make_shared<const SvdPreview>(layer, rank);
  return LowRankLogProb(std::move(head), std::move(outside));
}

double LowRankLogProb::operator()(const float* h, std::size_t dim, TokenId token,
                                  Workspace& workspace) const {
  const SoftmaxLayer& layer = head_->layer();
  const std::size_t vocab = layer.vocab();
  check_token(token, vocab);
  const std::optional<Candidates> found = head_->candidates(h, dim, {}, workspace);
  if (found->everything) return exact_log_prob(layer, h, dim, token, workspace);

  const std::span<const TokenId> ids = found->ids;
  auto* const logits = workspace.logits.get<float>(vocab + ids.size());
  outside_->logits(h, workspace.heap.get<float>(outside_->width()), logits);
  float* const inside = logits + vocab;
  score_candidates(layer, *found, h, inside);
  for (std::size_t i = 0; i < ids.size(); ++i) logits[ids[i]] = inside[i];
  return log_prob_of(logits, vocab, token);
}

}  // namespace topksoftmax
