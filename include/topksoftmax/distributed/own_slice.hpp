// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/certified/raised_threshold.hpp"
#include "topksoftmax/certified/threshold.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/distributed/partial_answer.hpp"
#include "topksoftmax/distributed/sliced_edits.hpp"
#include "topksoftmax/exhaustive.hpp"
#include "topksoftmax/kernels/log_sum_exp.hpp"
#include "topksoftmax/kernels/top_k_heap.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/query_batch.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/shared_scan.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/vocabulary_slice.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What ranks make their intervals narrower by than is asked for, so that adding them up has room to round.
inline constexpr double kNarrower = 1.0 - 0x1p-10;

/// What a rank says of the rows that it has. Queries are those of the whole layer; `query.k` tokens at the
/// most are written of each context, and none where no token of the slice may be returned. One question at a
/// time.
class OwnSlice {
 public:
  /// Of `layer`, the rows of `slice`, one of so many ranks', and of a backend over them; null where there are
  /// none.
  OwnSlice(SoftmaxLayer layer, std::shared_ptr<const TopKSoftmax> backend, const VocabularySlice& slice,
           std::size_t ranks)
      : layer_(std::move(layer)),
        backend_(std::move(backend)),
        slice_(slice),
        narrower_(ranks > 1 ? kNarrower : 1.0) {}

  const TopKSoftmax* backend() const { return backend_.get(); }
  const VocabularySlice& slice() const { return slice_; }

  // Batches have the same options.

  /// Writes answers that count every row to messages, `apart` bytes from one to the next.
  void write_exact(const QueryBatch& batch, Workspace& workspace, std::byte* to, std::size_t apart) {
    const Query own = of_slice(batch[0]);
    if (own.k == 0) return write_nothing(batch.size(), to, apart);
    auto* const best = best_.get<ScoredToken>(batch.size() * own.k);
    auto* const heaps = heaps_.get<kernels::TopKHeap>(batch.size());
    auto* const sums = sums_.get<kernels::LogSumExp>(batch.size());
    for (std::size_t q = 0; q < batch.size(); ++q) {
      new (heaps + q) kernels::TopKHeap(best + q * own.k, own.k);
      new (sums + q) kernels::LogSumExp();
    }
    const QueryWork work = absorb_all(layer_, {own, batch.stride(), batch.size()}, workspace, heaps,
                                      own.probabilities ? sums : nullptr);
    for (std::size_t q = 0; q < batch.size(); ++q, to += apart) {
      write_message({work, sums[q]}, heaps[q].sort(), to);
    }
  }

  /// Writes the backend's answers likewise.
  void write_found(const QueryBatch& batch, Workspace& workspace, std::byte* to, std::size_t apart) {
    const Query own = of_slice(batch[0]);
    if (own.k == 0) return write_nothing(batch.size(), to, apart);
    find({own, batch.stride(), batch.size()}, workspace);
    for (std::size_t q = 0; q < batch.size(); ++q, to += apart) write_message(found_[q], to);
  }

  /// Finds what a Certified answers above a threshold that raise() makes of its own: see answer_above().
  template <class Raise>
  void find_above(const Query& query, const Raise& raise, Workspace& workspace) {
    if (found_.empty()) found_.resize(1);
    const Query own = of_slice(query);
    if (own.k == 0) {
      raise(kNoThreshold);
      return;
    }
    answer_above(static_cast<const Certified&>(*backend_), own, query.k, raise, workspace, found_[0]);
  }

  /// Writes what find_above() has found for the query.
  void write_found_above(const Query& query, std::byte* to) {
    if (of_slice(query).k == 0) return write_nothing(1, to, 0);
    write_message(found_[0], to);
  }

  /// Writes the logits of the rows, edits applied: [batch × slice].
  void write_logits(const QueryBatch& batch, const Workspace& workspace, float* logits) {
    if (slice_.empty()) return;
    Query own = batch[0];
    own.edits = edits_.of(own.edits, slice_);
    score_all(layer_, {own, batch.stride(), batch.size()}, workspace, logits);
  }

  /// Writes the logits of those of some rows of the whole layer that are among them, in their order.
  void write_logits_of(const float* h, std::span<const TokenId> rows, const Workspace& workspace,
                       float* logits) {
    auto* const own = ids_.get<TokenId>(rows.size());
    std::size_t count = 0;
    for (const TokenId row : rows) {
      if (!slice_.holds(static_cast<std::size_t>(row))) continue;
      own[count++] = row - static_cast<TokenId>(slice_.first);
    }
    scan_gathered(workspace, layer_.rows(), own, count, h, logits);
  }

 private:
  /// The query of these rows. No token may be returned, or there are no rows: k is 0.
  Query of_slice(const Query& query) {
    Query own = query;
    own.edits = edits_.of(query.edits, slice_);
    own.k = std::min(query.k, own.edits.allowed.count(slice_.size()));
    own.log_z_tolerance *= narrower_;
    return own;
  }

  static void write_nothing(std::size_t batch, std::byte* to, std::size_t apart) {
    for (std::size_t q = 0; q < batch; ++q) write_message({}, {}, to + q * apart);
  }

  void find(const QueryBatch& batch, Workspace& workspace) {
    const Query own = batch[0];
    const QueryOptions options = {.k = own.k,
                                  .allowed = own.edits.allowed,
                                  .logit_bias = {own.edits.bias, own.edits.bias_count},
                                  .probabilities = own.probabilities,
                                  .effort = own.effort,
                                  .log_z_tolerance = own.log_z_tolerance};
    if (found_.size() < batch.size()) found_.resize(batch.size());
    if (batch.size() == 1) return backend_->query({own.h, layer_.dim()}, options, workspace, found_[0]);
    backend_->query_batch(own.h, batch.size(), layer_.dim(), batch.stride(), options, {&workspace, 1},
                          std::span(found_).first(batch.size()), SerialExecutor());
  }

  SoftmaxLayer layer_;
  std::shared_ptr<const TopKSoftmax> backend_;
  VocabularySlice slice_;
  double narrower_;
  SlicedEdits edits_;
  std::vector<TopK> found_;
  ScratchBuffer best_;
  ScratchBuffer heaps_;
  ScratchBuffer sums_;
  ScratchBuffer ids_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
