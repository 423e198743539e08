// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/fused.hpp"

#include <new>

#include "topksoftmax/exhaustive.hpp"
#include "topksoftmax/kernels/implementation.hpp"

namespace topksoftmax {

void Fused::do_query(const Query& query, Workspace& workspace, TopK& answer) const {
  answer_from_all(layer(), query, workspace, answer);
}

void Fused::do_query_batch(const Query& query, std::size_t stride, std::size_t batch, Workspace& workspace,
                           TopK* answers) const {
  auto* const tokens = workspace.heap.get<ScoredToken>(batch * query.k);
  auto* const heaps = workspace.screen[0].get<kernels::TopKHeap>(batch);
  auto* const sums = workspace.screen[1].get<kernels::LogSumExp>(batch);
  for (std::size_t q = 0; q < batch; ++q) {
    new (heaps + q) kernels::TopKHeap(tokens + q * query.k, query.k);
    new (sums + q) kernels::LogSumExp();
  }
  kernels::active().fused_scan_batch(layer().rows(), query.h, stride, batch, query.edits, heaps,
                                     query.probabilities ? sums : nullptr);
  for (std::size_t q = 0; q < batch; ++q)
    store_exact(heaps[q], query, sums[q], full_scan_work(layer()), answers[q]);
}

}  // namespace topksoftmax
