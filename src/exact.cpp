// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/exact.hpp"

#include <limits>

#include "topksoftmax/exhaustive.hpp"
#include "topksoftmax/kernels/implementation.hpp"

namespace topksoftmax {
namespace {

void edit(const kernels::LogitEdits& edits, std::size_t vocab, float* logits) {
  for (std::size_t b = 0; b < edits.bias_count; ++b) {
    float& logit = logits[edits.bias[b].id];
    logit = kernels::add_bias(logit, edits.bias[b].bias);
  }
  if (edits.allowed == nullptr) return;
  for (std::size_t token = 0; token < vocab; ++token) {
    if (!edits.allows(static_cast<TokenId>(token))) logits[token] = -std::numeric_limits<float>::infinity();
  }
}

}  // namespace

void Exact::do_query(const Query& query, Workspace& workspace, TopK& answer) const {
  const std::size_t vocab = layer().vocab();
  const kernels::Implementation& kernel = kernels::active();
  auto* const logits = workspace.logits.get<float>(vocab);
  kernel.scan(layer().rows(), 0, vocab, query.h, logits);
  edit(query.edits, vocab, logits);

  kernels::LogSumExp sum;
  if (query.probabilities) {
    sum.max = kernel.max(logits, vocab);
    sum.sum = kernel.sum_exp(logits, vocab, sum.max);
  }
  kernels::TopKHeap heap(workspace.heap.get<ScoredToken>(query.k), query.k);
  kernel.select(logits, nullptr, vocab, heap);
  store_exact(heap, query, sum, full_scan_work(layer()), answer);
}

}  // namespace topksoftmax
