// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/candidates.hpp"

#include <algorithm>

#include "topksoftmax/exhaustive.hpp"
#include "topksoftmax/kernels/implementation.hpp"

namespace topksoftmax {
namespace {

/// The candidates, and behind them the tokens that the query biases and the screener did not propose.
std::span<const TokenId> with_biased_tokens(std::span<const TokenId> ids, const kernels::LogitEdits& edits,
                                            std::size_t vocab, Workspace& workspace) {
  workspace.seen.clear(vocab);
  auto* const all =
      workspace.screen[std::size(workspace.screen) - 1].get<TokenId>(ids.size() + edits.bias_count);
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

}  // namespace

void answer_from_candidates(const SoftmaxLayer& layer, const Query& query, const Candidates& candidates,
                            Workspace& workspace, TopK& answer) {
  QueryWork work = {.bytes_read = candidates.bytes_read, .screened = candidates.screened};
  std::span<const TokenId> ids = candidates.ids;
  if (candidates.everything || ids.size() < query.k) {
    return answer_from_all_after(layer, query, work, workspace, answer);
  }
  const bool biased = query.edits.bias_count != 0;
  if (biased) ids = with_biased_tokens(ids, query.edits, layer.vocab(), workspace);

  const kernels::Implementation& kernel = kernels::active();
  auto* const logits = workspace.logits.get<float>(ids.size());
  if (candidates.packed != nullptr && !biased) {
    kernel.scan(*candidates.packed, 0, ids.size(), query.h, logits);
  } else {
    kernel.scan_gathered(layer.rows(), ids.data(), ids.size(), query.h, logits);
  }
  if (!query.edits.empty()) edit(query.edits, ids, logits);
  work.candidates = ids.size();
  work.bytes_read += layer.rows().bytes(ids.size());

  kernels::TopKHeap heap(workspace.heap.get<ScoredToken>(query.k), query.k);
  kernel.select(logits, ids.data(), ids.size(), heap);
  if (heap.size() < query.k) return answer_from_all_after(layer, query, work, workspace, answer);

  double inside = 0.0;
  if (query.probabilities) {
    kernels::LogSumExp sum;
    sum.max = kernel.max(logits, ids.size());
    sum.sum = kernel.sum_exp(logits, ids.size(), sum.max);
    inside = sum.value();
  }
  store_tokens(heap, answer);
  if (query.probabilities) {
    answer.normalizer = candidates.normalizer;
    answer.log_z_low = kernels::log_add_exp(inside, candidates.outside_low);
    answer.log_z_high = kernels::log_add_exp(inside, candidates.outside_high);
    answer.log_z = 0.5 * (answer.log_z_low + answer.log_z_high);
  } else {
    store_log_z(Normalizer::none, std::numeric_limits<double>::quiet_NaN(), answer);
  }
  answer.certified = candidates.certified;
  answer.work = work;
}

}  // namespace topksoftmax
