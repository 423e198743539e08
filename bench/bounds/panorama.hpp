// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/registry/description.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace topksoftmax::bench {

struct PanoramaOptions {
  std::size_t levels = 8;

  template <class Self, class Visit>
  static void visit(Self& options, Visit&& visit) {
    visit("levels", options.levels, "parts that a row's coordinates are met in", at_least(1));
  }
};

/// Rows in the coordinates of their own principal components, met level by level in float32: what a row has
/// met of a context, and ‖w₂‖·‖h₂‖ for the rest, bound its logit. After Panorama, as
/// faiss's IndexFlatPanorama has it. Batches of 128 rows, each level of a batch in one piece; a row that
/// cannot be among the k best of the batches before is not met further. Exact; log Z is over what was met to
/// the end. Masks and biases: every token is scored.
class PanoramaScreener {
 public:
  PanoramaScreener(const SoftmaxLayer& layer, const PanoramaOptions& options);

  Candidates screen(const Query& query, Workspace& workspace) const;
  std::string_view name() const { return "panorama"; }
  std::size_t index_bytes() const {
    return (rows_.size() + rests_.size() + static_cast<std::size_t>(components_.size())) * sizeof(float);
  }

  static constexpr std::size_t kBatchRows = 128;

 private:
  std::size_t batch_size(std::size_t batch) const;
  /// The coordinates of a batch's rows at a level.
  kernels::Rows level_of(std::size_t batch, std::size_t level) const;

  SoftmaxLayer layer_;
  RowMajorMatrix components_;       ///< [d×d], one a row
  std::vector<std::size_t> begin_;  ///< [levels + 1], where the coordinates of each begin
  std::vector<float> rows_;         ///< by batch, level and row
  std::vector<float> rests_;        ///< ‖w₂‖ behind each level, by batch, level and row, not less
  double longest_row_ = 0.0;
  double largest_bias_ = 0.0;
};

/// Panorama's bounds as the harness builds them.
BackendDescription panorama_bounds();

}  // namespace topksoftmax::bench
