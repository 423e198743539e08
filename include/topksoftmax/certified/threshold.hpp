// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

#include "topksoftmax/certified/bounded_rows.hpp"
#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/certified/divided_bounds.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/numeric/largest.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/shared_scan.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Where no threshold is known.
inline constexpr float kNoThreshold = -std::numeric_limits<float>::infinity();

/// Rows with high estimates that are scored to find a threshold.
inline std::size_t seeds(std::size_t k) {
  return k + k / 2 + 4;
}

/// Rows whose estimates are searched at a time: what is found does not depend on the query's crew.
inline constexpr std::size_t kSearchedAtOnce = std::size_t{1} << 14;

// Rows are BoundedRows or ReachingRows below.

/// Writes the most promising `wanted` rows of each part of these (see kernels::promising) to ids
/// [divided_room(rows.count)]; returns how many they are.
template <class Rows>
std::size_t promising_of_parts(const BoundedQuery& bounded, const Rows& rows, std::size_t wanted,
                               TokenId* ids) {
  constexpr std::size_t kMaxima = kernels::maxima_room(kSearchedAtOnce);
  auto* const maxima = bounded.scratch().logits.get<float>((rows.count / kSearchedAtOnce + 1) * kMaxima);
  const auto search = [&](std::size_t first, std::size_t count, TokenId* to) {
    float* const own = maxima + first / kSearchedAtOnce * kMaxima;
    return kernels::Partition{kernels::promising(rows.estimates + first, count, wanted, own, to), {}};
  };
  return divide_in_parts(bounded, rows.count, kSearchedAtOnce, sizeof(float), ids, search).reaching;
}

/// Writes which of the rows have the highest estimates to ids [divided_room(rows.count)]: `wanted` of them
/// and few more unless many are equal, none if too few estimates are finite, as kernels::promising does.
template <class Rows>
std::size_t most_promising(const BoundedQuery& bounded, const Rows& rows, std::size_t wanted, TokenId* ids) {
  if (rows.count > kSearchedAtOnce) {
    const std::size_t found = promising_of_parts(bounded, rows, wanted, ids);
    if (found >= wanted) {
      put_largest_first(ids, found, wanted, rows.estimates);
      return wanted;
    }
  }
  auto* const maxima = bounded.scratch().logits.get<float>(kernels::maxima_room(rows.count));
  return kernels::promising(rows.estimates, rows.count, wanted, maxima, ids);
}

/// Tokens with their logits, in the workspace.
struct ScoredTokens {
  const TokenId* ids = nullptr;
  float* logits = nullptr;
  std::size_t count = 0;
};

/// About `wanted` of the rows with the highest estimates, scored; few or none where fewer estimates are
/// finite. Adds to bytes_read what that takes.
template <class Rows>
ScoredTokens score_most_promising(const BoundedQuery& bounded, const Rows& rows, std::size_t wanted,
                                  std::size_t& bytes_read) {
  const kernels::Rows& weights = bounded.layer.rows();
  CertifiedScratch& scratch = bounded.scratch();
  auto* const ids = scratch.ids.get<TokenId>(divided_room(rows.count));
  const std::size_t found = most_promising(bounded, rows, wanted, ids);
  const std::size_t count = std::min(found, 4 * wanted);
  // Estimates that are equal, or far from most, let many pass.
  if (count < found) put_largest_first(ids, found, count, rows.estimates);
  for (std::size_t i = 0; i < count; ++i) {
    ids[i] = bounded.index.token(rows.place(static_cast<std::size_t>(ids[i])));
  }
  auto* const logits = scratch.logits.get<float>(count);
  scan_gathered(bounded.workspace, weights, ids, count, bounded.query.h, logits);
  bytes_read += weights.bytes(count);
  return {ids, logits, count};
}

/// The k-th best logit of the rows with the highest estimates; kNoThreshold if fewer than k may be returned.
/// Adds to bytes_read what it takes to score these.
template <class Rows>
float kth_of_best(const BoundedQuery& bounded, const Rows& rows, std::size_t& bytes_read) {
  const std::size_t k = bounded.query.k;
  const std::size_t wanted = std::min(seeds(bounded.query.k), bounded.index.rows());
  const ScoredTokens best = score_most_promising(bounded, rows, wanted, bytes_read);
  if (best.count < k) return kNoThreshold;
  if (best.count <= kernels::kFew) return kernels::kth_of_few(best.logits, best.count, k);
  return kth_largest(best.logits, best.count, k);
}

/// The k-th best logit of rows with high estimates: the exact threshold, or just below it. kNoThreshold if
/// fewer than k rows may be returned.
inline float threshold_from_best(const BoundedQuery& bounded, std::size_t& bytes_read) {
  // Where many tokens are forbidden, it takes more rows to find so many that are not.
  constexpr std::size_t kMoreLikely = 8;
  const std::size_t all = bounded.index.rows();
  for (std::size_t likely = std::min(seeds(bounded.query.k), all);; likely *= kMoreLikely) {
    const BoundedRows rows = likely_rows(bounded, likely);
    bytes_read += rows.bytes_read;
    const float threshold = kth_of_best(bounded, rows, bytes_read);
    if (threshold > kNoThreshold || likely >= all) return threshold;
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
