// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/config.hpp"
#include "topksoftmax/graph/small_world_graph.hpp"

#if !defined(TOPKSOFTMAX_BUILDERS_ELSEWHERE)  // see config.hpp
#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "topksoftmax/error.hpp"
#include "topksoftmax/graph/small_world_graph.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/rows/ippt.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

// hnswlib's own distances, which we do not use, are functions and pointers that hnswlib 0.6 defines in every
// file that includes it, so that a program with two such files does not link. This switch of hnswlib's leaves
// them out. A file that wants them too includes hnswlib before this header.
#ifdef NO_MANUAL_VECTORIZATION
#include <hnswlib/hnswlib.h>
#else
#define NO_MANUAL_VECTORIZATION
#include <hnswlib/hnswlib.h>
#undef NO_MANUAL_VECTORIZATION
#endif

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What hnswlib measures distances with: our kernel.
class KernelSpace final : public hnswlib::SpaceInterface<float> {
 public:
  explicit KernelSpace(std::size_t dim) : dim_(dim) {}

  std::size_t get_data_size() override { return dim_ * sizeof(float); }
  hnswlib::DISTFUNC<float> get_dist_func() override { return &distance; }
  void* get_dist_func_param() override { return this; }

  static float distance(const void* a, const void* b, const void* space) {
    const auto* const self = static_cast<const KernelSpace*>(space);
    return kernels::squared_distance(static_cast<const float*>(a), static_cast<const float*>(b), self->dim_);
  }

 private:
  std::size_t dim_;
};

/// HNSW while it is built, and then taken apart.
class Hnsw {
 public:
  Hnsw(const SoftmaxLayer& layer, const SmallWorldOptions& options)
      : ippt_(layer),
        space_(ippt_.dim()),
        graph_(&space_, layer.vocab(), options.M, options.ef_construction, options.seed),
        transformed_(ippt_.dim()),
        point_(ippt_.dim()) {}

  /// Inserts the next row: tokens come in their order, so that they are hnswlib's own numbers too.
  void insert(std::size_t token) {
    // x̄/U, of length 1, has the same neighbours as x̄ and no distances that overflow.
    const double scale = ippt_.radius() > 0.0 ? 1.0 / ippt_.radius() : 1.0;
    ippt_.transform_row(token, transformed_.data());
    std::transform(transformed_.begin(), transformed_.end(), point_.begin(),
                   [scale](double x) { return static_cast<float>(x * scale); });
    graph_.addPoint(point_.data(), token);
  }

  std::size_t vocab() const { return graph_.cur_element_count; }
  TokenId entry() const { return static_cast<TokenId>(graph_.enterpoint_node_); }
  int top_level() const { return graph_.maxlevel_; }

  float distance(TokenId a, TokenId b) const {
    return KernelSpace::distance(point(a), point(b), graph_.dist_func_param_);
  }

  /// The links of every row that is in this layer, ground 0.
  std::vector<std::vector<TokenId>> links(int level) const {
    std::vector<std::vector<TokenId>> of_rows(vocab());
    for (std::size_t row = 0; row < vocab(); ++row) {
      if (graph_.element_levels_[row] < level) continue;
      hnswlib::linklistsizeint* const list =
          graph_.get_linklist_at_level(static_cast<hnswlib::tableint>(row), level);
      const hnswlib::tableint* const targets = list + 1;
      of_rows[row].assign(targets, targets + graph_.getListCount(list));
    }
    return of_rows;
  }

 private:
  const char* point(TokenId row) const {
    return graph_.getDataByInternalId(static_cast<hnswlib::tableint>(row));
  }

  Ippt ippt_;
  KernelSpace space_;
  hnswlib::HierarchicalNSW<float> graph_;
  std::vector<double> transformed_;
  std::vector<float> point_;
};

/// Calls hnswlib; what it throws becomes an Error.
template <class Call>
void call_hnswlib(const Call& call) {
  try {
    call();
  } catch (const std::runtime_error& failure) {
    throw Error(std::string("fgd: hnswlib failed: ") + failure.what());
  }
}

/// Inserts all rows.
inline void insert_rows(std::optional<Hnsw>& hnsw, const SoftmaxLayer& layer,
                        const SmallWorldOptions& options) {
  constexpr std::size_t kReports = 100;
  const std::size_t vocab = layer.vocab();
  call_hnswlib([&] { hnsw.emplace(layer, options); });
  for (std::size_t token = 0; token < vocab; ++token) {
    call_hnswlib([&] { hnsw->insert(token); });
    const bool reports = (token + 1) % (vocab / kReports + 1) == 0 || token + 1 == vocab;
    if (options.progress && reports) {
      options.progress(static_cast<double>(token + 1) / static_cast<double>(vocab));
    }
  }
}

/// The nearest to `row` of the rows of a range that are reached; −1 if none is.
template <class Range>
TokenId nearest_reached(const Hnsw& hnsw, TokenId row, const Range& range, const Reached& reached) {
  TokenId nearest = -1;
  float least = std::numeric_limits<float>::infinity();
  for (const TokenId other : range) {
    if (!reached.contains(other)) continue;
    const float distance = hnsw.distance(row, other);
    if (nearest >= 0 && distance >= least) continue;
    nearest = other;
    least = distance;
  }
  return nearest;
}

/// Insertion drops links in favour of shorter ones, until nothing leads to some rows. Each of these gets a
/// link from the nearest row that it links to itself and that is reached; where there is none, from the
/// nearest of all that are.
inline void link_unreached(const Hnsw& hnsw, std::span<const TokenId> entries,
                           std::vector<std::vector<TokenId>>& links) {
  const auto links_of = [&links](TokenId row) -> const std::vector<TokenId>& {
    return links[static_cast<std::size_t>(row)];
  };
  const auto vocab = static_cast<TokenId>(links.size());
  Reached reached(links.size());
  for (const TokenId entry : entries) reached.add(entry, links_of);
  const auto link_from = [&](TokenId from, TokenId row) {
    links[static_cast<std::size_t>(from)].push_back(row);
    reached.add(row, links_of);
  };
  for (TokenId row = 0; row < vocab; ++row) {
    if (reached.contains(row)) continue;
    const TokenId from = nearest_reached(hnsw, row, links_of(row), reached);
    if (from >= 0) link_from(from, row);
  }
  std::vector<TokenId> all(links.size());
  for (TokenId row = 0; row < vocab; ++row) all[static_cast<std::size_t>(row)] = row;
  for (TokenId row = 0; row < vocab; ++row) {
    if (!reached.contains(row)) link_from(nearest_reached(hnsw, row, all, reached), row);
  }
}

TOPKSOFTMAX_BUILD_INLINE SmallWorldGraph::SmallWorldGraph(const SoftmaxLayer& layer,
                                                          const SmallWorldOptions& options,
                                                          std::vector<TokenId> entries)
    : entries_(std::move(entries)) {
  std::optional<Hnsw> hnsw;
  insert_rows(hnsw, layer, options);
  if (entries_.empty()) {
    entries_.push_back(hnsw->entry());
    for (int level = hnsw->top_level(); level > 0; --level) upper_.emplace_back(hnsw->links(level));
  }
  std::vector<std::vector<TokenId>> ground = hnsw->links(0);
  link_unreached(*hnsw, entries_, ground);
  ground_ = Links(ground);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

#endif
