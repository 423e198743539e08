// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "topksoftmax/config.hpp"
#include "topksoftmax/fgd/fgd_index.hpp"
#include "topksoftmax/graph/search_beam.hpp"
#include "topksoftmax/graph/small_world_graph.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/kernels/prefetch.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/storage/cache_line.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Rows worth scoring at a time: as many as the kernels score together.
inline constexpr std::size_t kSearchBatch = 16;

/// What GraphSearch works in.
struct GraphSearchScratch {
  ScratchBuffer beam_logits;
  ScratchBuffer beam_rows;
  ScratchBuffer batch_rows;
  ScratchBuffer batch_logits;
  ScratchBuffer context;  ///< filled up with zeros
  ScratchBuffer found;
  TokenSet seen;  ///< rows that have been in a batch
};

/// One walk through the graph.
class GraphSearch {
 public:
  /// At most `limit` > ef rows can be in its beam.
  GraphSearch(const FgdIndex& index, const Query& query, std::size_t ef, std::size_t limit,
              Workspace& workspace)
      : graph_(index.graph()),
        rows_(index.rows()),
        edits_(query.edits),
        context_(query.h),
        scratch_(workspace.scratch<GraphSearchScratch>()),
        beam_(scratch_.beam_logits.get<float>(limit), scratch_.beam_rows.get<std::uint32_t>(limit), limit,
              ef),
        ids_(scratch_.batch_rows.get<TokenId>(batch_room())),
        logits_(scratch_.batch_logits.get<float>(batch_room())) {
    if (rows_.dim > index.dim()) context_ = padded(query.h, index.dim());
    scratch_.seen.clear(rows_.count);
  }

  /// Walks until the best row left is worse than the ef best found. False where the beam overflows.
  bool run() {
    for (const TokenId entry : graph_.entries()) add(entry);
    if (!graph_.upper().empty()) add(descend(graph_.entries().front()));
    while (count_ > 0) {
      if (!score()) return false;
      for (TokenId row = 0; count_ < kSearchBatch && (row = beam_.expand_next()) >= 0;) follow(row);
    }
    return true;
  }

  /// The tokens found, best first.
  std::span<const TokenId> found(std::size_t limit) {
    auto* const ids = scratch_.found.get<TokenId>(limit);
    return {ids, beam_.take(ids)};
  }

  std::size_t scored() const { return scored_; }
  std::size_t bytes_read() const { return rows_.bytes(scored_) + links_followed_ * sizeof(TokenId); }

 private:
  /// The most rows that come together in a batch.
  std::size_t batch_room() const {
    std::size_t most = std::max(graph_.ground().most(), graph_.entries().size() + 1);
    for (const Links& layer : graph_.upper()) most = std::max(most, layer.most());
    return kSearchBatch + most;
  }

  const float* padded(const float* h, std::size_t dim) {
    auto* const context = scratch_.context.get<float>(rows_.dim);
    std::copy_n(h, dim, context);
    std::fill(context + dim, context + rows_.dim, 0.0F);
    return context;
  }

  /// HNSW's way down: in each layer to the neighbour with the largest logit, until there is none better.
  TokenId descend(TokenId row) {
    kernels::scan_gathered(rows_, &row, 1, context_, logits_);
    ++scored_;
    float best = logits_[0];
    for (const Links& layer : graph_.upper()) {
      for (bool better = true; better;) {
        const std::span<const TokenId> links = layer.of(row);
        kernels::scan_gathered(rows_, links.data(), links.size(), context_, logits_);
        scored_ += links.size();
        links_followed_ += links.size();
        const float* const found = std::max_element(logits_, logits_ + links.size());
        better = found != logits_ + links.size() && *found > best;
        if (better) {
          best = *found;
          row = links[static_cast<std::size_t>(found - logits_)];
        }
      }
    }
    return row;
  }

  /// Puts a row into the batch, unless it has been in one.
  void add(TokenId row) {
    ids_[count_] = row;
    count_ += scratch_.seen.insert(row) ? 1U : 0U;
  }

  void follow(TokenId row) {
    const std::span<const TokenId> links = graph_.ground().of(row);
    links_followed_ += links.size();
    const std::size_t first = count_;
    for (const TokenId link : links) add(link);
    const std::size_t bytes = rows_.row_bytes();
    for (std::size_t i = first; i < count_; ++i) {
      const std::byte* const weights = rows_.row(static_cast<std::size_t>(ids_[i]));
      for (std::size_t line = 0; line < bytes; line += kCacheLine) kernels::prefetch(weights + line);
    }
  }

  /// Empties the batch into the beam.
  bool score() {
    kernels::scan_gathered(rows_, ids_, count_, context_, logits_);
    scored_ += count_;
    const float threshold = beam_.threshold();
    std::size_t promising = 0;
    for (std::size_t i = 0; i < count_; ++i) {  // most are not: sort them out without a branch
      const float logit = logits_[i];
      logits_[promising] = logit;
      ids_[promising] = ids_[i];
      promising += logit > threshold ? 1U : 0U;
    }
    count_ = 0;
    for (std::size_t i = 0; i < promising; ++i) {
      if (beam_.overflows()) return false;
      beam_.offer(logits_[i], ids_[i], edits_.empty() || answerable(ids_[i]));
    }
    return true;
  }

  /// Forbidden tokens cannot be answered, and those with a bias of their own are candidates anyway.
  bool answerable(TokenId row) const { return edits_.allows(row) && edits_.bias_of(row) == nullptr; }

  const SmallWorldGraph& graph_;
  const kernels::Rows& rows_;
  const kernels::LogitEdits& edits_;
  const float* context_;
  GraphSearchScratch& scratch_;
  SearchBeam beam_;
  TokenId* ids_;   ///< the batch
  float* logits_;  ///< of the batch
  std::size_t count_ = 0;
  std::size_t scored_ = 0;
  std::size_t links_followed_ = 0;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
