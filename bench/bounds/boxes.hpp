// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include "bounds/row_groups.hpp"
#include "harness/backend.hpp"
#include "topksoftmax/candidates.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace topksoftmax::bench {

struct BoxOptions {
  std::size_t prefix = 32;  ///< coordinates that boxes and rows are bounded by; at most d are used
};

/// Blocks of 16 similar rows in boxes, in the balanced coordinates of Certified: a logit is at most the sum,
/// over the prefix, of the larger of low_j·h'_j and high_j·h'_j, plus the block's longest tail times the
/// context's, plus its largest bias. Boxes are opened, the highest bound first, until the next bound is below
/// the k-th best logit so far; their rows are bounded by their own prefixes (float32) and tails, and those
/// that may reach that logit are scored. Exact; log Z is over what was scored. Masks and biases: every token
/// is scored.
///
/// Similar rows: halves about the median of the coordinate that spreads most, down to 16 rows. Cost of a
/// query: d² weights of the rotation, V/16·(2·prefix + 2) of the boxes, then 16·(prefix + 2) for each box
/// opened.
class BoxScreener {
 public:
  /// The coordinates are learned from contexts [N×d], which may be empty.
  BoxScreener(const SoftmaxLayer& layer, const RowMajorMatrix& contexts, const BoxOptions& options);

  Candidates screen(const Query& query, Workspace& workspace) const;
  std::string_view name() const { return "boxes"; }
  std::size_t index_bytes() const { return rotation_.bytes() + boxes_.bytes() + prefixes_.bytes(); }

 private:
  SoftmaxLayer layer_;
  std::size_t prefix_;
  RowGroups groups_;
  SoftmaxLayer rotation_;  ///< [d×d]
  SoftmaxLayer boxes_;     ///< [boxes × (2·prefix + 2)]: center, tail, slack, half width
  SoftmaxLayer prefixes_;  ///< [V × (prefix + 2)]: coordinates, tail, slack; in the order of the groups
  double largest_ = 0.0;   ///< norm of a row or of its bounds
};

/// The boxes as the harness builds them.
Backend box_bounds();

}  // namespace topksoftmax::bench
