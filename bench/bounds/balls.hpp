// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/registry/description.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace topksoftmax::bench {

/// A layer's tokens in groups, those of a group next to each other.
struct RowGroups {
  std::vector<TokenId> tokens;     ///< [V]
  std::vector<std::size_t> begin;  ///< [groups + 1], where each begins among the tokens

  std::size_t count() const { return begin.size() - 1; }
  std::size_t size(std::size_t group) const { return begin[group + 1] - begin[group]; }
  std::span<const TokenId> of(std::size_t group) const {
    return std::span(tokens).subspan(begin[group], size(group));
  }
};

struct BallOptions {
  std::size_t clusters = 0;  ///< 0: one for every 16 rows

  template <class Self, class Visit>
  static void visit(Self& options, Visit&& visit) {
    visit("clusters", options.clusters, "balls; 0: one for every 16 rows");
  }
};

/// Rows in clusters, each in a ball: w·h + b ≤ c·h + radius·‖h‖ + the cluster's largest b. After CSV-Decode
/// (arXiv 2511.21702). Clusters are scored whole, the highest bound first, until the next bound is below the
/// k-th best logit so far. Exact; log Z is over what was scored. Masks and biases: every token is scored.
///
/// Clusters: spherical k-means. Cost of a query: clusters·d weights, then those of the clusters left, which
/// lie in one piece.
class BallScreener {
 public:
  BallScreener(const SoftmaxLayer& layer, const BallOptions& options);

  Candidates screen(const Query& query, Workspace& workspace) const;
  std::string_view name() const { return "balls"; }
  std::size_t index_bytes() const { return balls_.bytes() + ordered_.bytes(); }

 private:
  RowGroups groups_;
  SoftmaxLayer balls_;    ///< [clusters × (d + 1)]: center and radius, for a context and its length
  SoftmaxLayer ordered_;  ///< the layer's rows in the order of the groups
  double largest_ = 0.0;  ///< norm of a row or ball
};

/// The balls as the harness builds them.
BackendDescription ball_bounds();

}  // namespace topksoftmax::bench
