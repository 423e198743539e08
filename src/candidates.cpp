// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/candidates.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "topksoftmax/exhaustive.hpp"
#include "topksoftmax/kernels/implementation.hpp"

namespace topksoftmax {
namespace {

/// The candidates, and behind them the tokens that the query biases and the screener did not propose.
std::span<const TokenId> with_biased_tokens(std::span<const TokenId> ids, const kernels::LogitEdits& edits,
                                            std::size_t vocab, Workspace& workspace) {
  workspace.seen.clear(vocab);
  auto* const all = workspace.biased.get<TokenId>(ids.size() + edits.bias_count);
  std::copy(ids.begin(), ids.end(), all);
  for (const TokenId id : ids) workspace.seen.insert(id);
  std::size_t count = ids.size();
  for (std::size_t b = 0; b < edits.bias_count; ++b) {
    if (workspace.seen.insert(edits.bias[b].id)) all[count++] = edits.bias[b].id;
  }
  return {all, count};
}

void edit(const kernels::LogitEdits& edits, std::span<const TokenId> ids, float* logits) {
  const TokenBias* const end = edits.bias + edits.bias_count;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (!edits.allows(ids[i])) {
      logits[i] = -std::numeric_limits<float>::infinity();
    } else if (edits.bias_count != 0) {
      const TokenBias* const found = std::lower_bound(
          edits.bias, end, ids[i], [](const TokenBias& bias, TokenId id) { return bias.id < id; });
      if (found != end && found->id == ids[i]) logits[i] = kernels::add_bias(logits[i], found->bias);
    }
  }
}

void answer_from_all_after(const SoftmaxLayer& layer, const Query& query, const QueryWork& screening,
                           Workspace& workspace, TopK& answer) {
  answer_from_all(layer, query, workspace, answer);
  answer.work.bytes_read += screening.bytes_read;
  answer.work.screened = screening.screened;
  answer.work.fell_back = true;
}

/// Contexts of a batch whose logits are held at a time.
constexpr std::size_t kContextsAtOnce = 16;

/// The work of screening and of scoring `count` candidates.
QueryWork work_of(const SoftmaxLayer& layer, const Candidates& candidates, std::size_t count) {
  return {.bytes_read = candidates.bytes_read + layer.rows().bytes(count),
          .screened = candidates.screened,
          .candidates = count};
}

/// The k best of the tokens, best first, in the workspace.
std::span<const ScoredToken> select_best(const float* logits, std::span<const TokenId> ids, std::size_t k,
                                         Workspace& workspace) {
  const kernels::Implementation& kernel = kernels::active();
  auto* const best = workspace.heap.get<ScoredToken>(k);
  if (ids.size() <= kernels::kFew) return {best, kernel.rank_few(logits, ids.data(), ids.size(), k, best)};
  kernels::TopKHeap heap(best, k);
  kernel.select(logits, ids.data(), ids.size(), heap);
  return heap.sort();
}

/// select → normalise. The logits are edited in place. False, and the answer untouched, if fewer than query.k
/// tokens are left and the query wants to fall back.
bool answer_from_logits(const Query& query, const Candidates& candidates, std::span<const TokenId> ids,
                        const QueryWork& work, float* logits, Workspace& workspace, TopK& answer) {
  const kernels::Implementation& kernel = kernels::active();
  if (!query.edits.empty()) edit(query.edits, ids, logits);
  const std::span<const ScoredToken> best = select_best(logits, ids, query.k, workspace);
  if (query.fall_back && best.size() < query.k) return false;

  double inside = 0.0;
  if (query.probabilities) {
    kernels::LogSumExp sum;
    sum.max = kernel.max(logits, ids.size());
    sum.sum = kernel.sum_exp(logits, ids.size(), sum.max);
    inside = sum.value();
  }
  store_tokens(best, answer);
  if (query.probabilities) {
    answer.normalizer = candidates.normalizer;
    std::tie(answer.log_z_low, answer.log_z_high) = log_z_bounds(candidates, inside);
    answer.log_z =
        std::clamp(kernels::log_add_exp(inside, candidates.outside), answer.log_z_low, answer.log_z_high);
  } else {
    store_log_z(Normalizer::none, std::numeric_limits<double>::quiet_NaN(), answer);
  }
  answer.certified = candidates.certified;
  answer.work = work;
  return true;
}

}  // namespace

void score_candidates(const SoftmaxLayer& layer, const Candidates& candidates, const float* h,
                      float* logits) {
  const std::size_t count = candidates.ids.size();
  if (candidates.packed != nullptr) {
    kernels::active().scan(*candidates.packed, 0, count, h, logits);
  } else {
    kernels::active().scan_gathered(layer.rows(), candidates.ids.data(), count, h, logits);
  }
}

std::pair<double, double> log_z_bounds(const Candidates& candidates, double inside) {
  const double rounding =
      candidates.normalizer == Normalizer::interval ? std::log1p(kernels::kSumExpError) : 0.0;
  return {kernels::log_add_exp(inside - rounding, candidates.outside_low),
          kernels::log_add_exp(inside + rounding, candidates.outside_high)};
}

void answer_from_candidates(const SoftmaxLayer& layer, const Query& query, const Candidates& candidates,
                            Workspace& workspace, TopK& answer) {
  std::span<const TokenId> ids = candidates.ids;
  if (query.fall_back && (candidates.everything || ids.size() < query.k)) {
    return answer_from_all_after(layer, query, work_of(layer, candidates, 0), workspace, answer);
  }
  if (candidates.everything) ids = {};
  const bool biased = query.edits.bias_count != 0;
  if (biased) ids = with_biased_tokens(ids, query.edits, layer.vocab(), workspace);

  const bool scored = candidates.logits != nullptr && !biased;
  float* const logits = scored ? candidates.logits : workspace.logits.get<float>(ids.size());
  if (!scored && biased) {
    kernels::active().scan_gathered(layer.rows(), ids.data(), ids.size(), query.h, logits);
  } else if (!scored && !candidates.everything) {
    score_candidates(layer, candidates, query.h, logits);
  }
  const QueryWork work = work_of(layer, candidates, ids.size());
  if (!answer_from_logits(query, candidates, ids, work, logits, workspace, answer)) {
    answer_from_all_after(layer, query, work, workspace, answer);
  }
}

void answer_batch_from_candidates(const SoftmaxLayer& layer, const Query& query, std::size_t stride,
                                  std::size_t batch, const Candidates& candidates, Workspace& workspace,
                                  TopK* answers) {
  Query one = query;
  std::span<const TokenId> ids = candidates.ids;
  if (query.fall_back && (candidates.everything || ids.size() < query.k)) {
    for (std::size_t q = 0; q < batch; ++q, one.h += stride) {
      answer_from_all_after(layer, one, work_of(layer, candidates, 0), workspace, answers[q]);
    }
    return;
  }
  if (candidates.everything) ids = {};
  if (query.edits.bias_count != 0) ids = with_biased_tokens(ids, query.edits, layer.vocab(), workspace);
  const QueryWork work = work_of(layer, candidates, ids.size());
  for (std::size_t first = 0; first < batch; first += kContextsAtOnce) {
    const std::size_t contexts = std::min(kContextsAtOnce, batch - first);
    auto* const logits = workspace.logits.get<float>(contexts * ids.size());
    kernels::active().scan_gathered_batch(layer.rows(), ids.data(), ids.size(), one.h, stride, contexts,
                                          logits);
    for (std::size_t q = first; q < first + contexts; ++q, one.h += stride) {
      float* const row = logits + (q - first) * ids.size();
      if (!answer_from_logits(one, candidates, ids, work, row, workspace, answers[q])) {
        answer_from_all_after(layer, one, work, workspace, answers[q]);
      }
    }
  }
}

}  // namespace topksoftmax
