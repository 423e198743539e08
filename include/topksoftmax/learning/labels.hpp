// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The tokens that each context should find: `depth` ids a context, the most probable first. The first `top`
/// are the labels y of L2S's paper, with weight 1; the others are near misses, which count for less.
struct Labels {
  std::vector<TokenId> ids;    ///< [N×depth]
  std::vector<float> weights;  ///< [N×depth]
  /// Labels of a context.
  std::size_t depth = 0;
  /// How many of them have weight 1.
  std::size_t top = 0;

  /// Number of contexts, N.
  std::size_t count() const { return depth == 0 ? 0 : ids.size() / depth; }
  /// The labels of a context, the most probable first.
  std::span<const TokenId> of(std::size_t context) const {
    return std::span(ids).subspan(context * depth, depth);
  }
  /// The weights of these labels.
  std::span<const float> weights_of(std::size_t context) const {
    return std::span(weights).subspan(context * depth, depth);
  }
};

}  // namespace TOPKSOFTMAX_NAMESPACE
