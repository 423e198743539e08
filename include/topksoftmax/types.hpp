// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <limits>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// A token of the vocabulary, 0 ≤ id < V: the number of its row in W, unless a MappedVocabulary says which
/// row.
using TokenId = std::int32_t;

/// Matrices as layers and contexts hold them: one row a token or a context.
using RowMajorMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
/// A row-major matrix by reference: rows may be strided, the values within a row are contiguous. Eigen copies
/// whatever else it is given (an expression, a column-major matrix), and that is what is referred to.
using ConstRows = Eigen::Ref<const RowMajorMatrix, 0, Eigen::OuterStride<>>;
/// A contiguous vector by reference; likewise.
using ConstVector = Eigen::Ref<const Eigen::VectorXf>;

/// A token with its logit.
struct ScoredToken {
  /// w·h + b, transformed as the layer says, with the query's bias.
  float logit;
  /// The token.
  TokenId id;
};

/// The order of every answer: the higher logit first, and of equal logits the lower token id.
inline bool ranks_before(const ScoredToken& a, const ScoredToken& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

/// A value that is added to one token's logit.
struct TokenBias {
  /// The token.
  TokenId id;
  /// What is added to its logit: finite.
  float bias;
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The logit of a token that is forbidden, or has no row.
inline constexpr float kForbidden = -std::numeric_limits<float>::infinity();

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
