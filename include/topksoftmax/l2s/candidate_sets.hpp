// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The candidate set C(t) of every cluster, one after another.
struct CandidateSets {
  std::vector<std::size_t> offsets;  ///< [r+1]: C(t) is ids[offsets[t] … offsets[t+1])
  std::vector<TokenId> ids;          ///< ascending within a set

  /// Number of clusters, r.
  std::size_t clusters() const { return offsets.empty() ? 0 : offsets.size() - 1; }
  /// C(t), t < clusters().
  std::span<const TokenId> of(std::size_t t) const {
    return std::span(ids).subspan(offsets[t], offsets[t + 1] - offsets[t]);
  }
};

}  // namespace TOPKSOFTMAX_NAMESPACE
