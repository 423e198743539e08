// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <tuple>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/numeric/round_outwards.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The products that an estimate leaves out, each of a row's part and a context's: all coordinates that it
/// does not have of both; w⊥ with h⊥; w'−ŵ with h'; N with E; of a tail, ŵ₂ with h'₂−ĥ₂ (codes).
enum BoundTerm { kLonger, kOutside, kRounded, kRounding, kOfCodes, kBoundTerms };
using BoundTerms = std::array<double, kBoundTerms>;

/// The same of coordinates in codes: w'₂−ŵ₂ with h'₂ of either width, or the steps with as much of h'₂ as
/// chance may have them differ by (Dither::reach); ŵ₂ with h'₂−ĥ₂ of both; what lies beyond dithered codes
/// with h'₂ of either width.
enum CodeTerm { kInt4Rounded, kInt2Rounded, kCodeContext, kBeyondInt4, kBeyondInt2, kCodeTerms };
using CodeTerms = std::array<double, kCodeTerms>;

// Σ a_i·x_i ≤ √Σ(a_i/κ_i)² · √Σ(κ_i·x_i)²: the row's radius by the context's.

/// √Σ(a_i/κ_i)², not less.
template <class OfRow, class Terms>
double row_radius(const OfRow& terms, const Terms& weights) {
  double sum = 0.0;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    sum += std::pow(static_cast<double>(terms[i]) / weights[i], 2);
  }
  return std::sqrt(sum) * kOutward;
}

/// √Σ(κ_i·x_i)², not less, with room for the rounding of estimate + radius.
template <class Terms>
float context_radius(const Terms& terms, const Terms& weights) {
  double sum = 0.0;
  for (std::size_t i = 0; i < terms.size(); ++i) sum += terms[i] * weights[i] * (terms[i] * weights[i]);
  return up(std::sqrt(sum) * (1.0 + 0x1p-18));
}

/// The same of codes. Errors of both widths are such as chance makes, whose squares add up, or one width is
/// 0: √Σ(a_i·x_i)² ≤ √Σ(a_i/κ_i)² · max κ_i·x_i, so that the smaller product does not count.
inline float code_context_radius(CodeTerms terms, const CodeTerms& weights) {
  const double of_int4 = terms[kInt4Rounded] * weights[kInt4Rounded];
  const double of_int2 = terms[kInt2Rounded] * weights[kInt2Rounded];
  terms[of_int4 < of_int2 ? kInt4Rounded : kInt2Rounded] = 0.0;
  return context_radius(terms, weights);
}

/// What rows and contexts have of each term.
template <class Terms>
struct BoundShares {
  /// Rounded up: in float64 these would take as much as a narrow layer.
  using OfRow = std::array<float, std::tuple_size_v<Terms>>;

  static OfRow of_row(const Terms& terms) {
    OfRow kept;
    for (std::size_t i = 0; i < terms.size(); ++i) kept[i] = up(terms[i]);
    return kept;
  }

  std::vector<OfRow> rows;  ///< of every row
  Terms contexts{};         ///< of some contexts, in all
};

/// A part's share of the whole, never 0: weights are divided by it. 1 where both are 0 or beyond all doubles.
inline double nonzero_share(double part, double whole) {
  const double share = part / whole;
  return share <= 1.0 ? std::max(share, 1e-6) : 1.0;
}

/// What a row typically has of each term.
template <class Terms>
Terms mean_row(const BoundShares<Terms>& shares) {
  Terms mean{};
  for (const auto& terms : shares.rows) {
    for (std::size_t i = 0; i < terms.size(); ++i) {
      mean[i] += static_cast<double>(terms[i]) / static_cast<double>(shares.rows.size());
    }
  }
  return mean;
}

/// The weights κ: κ² of a term is best at the ratio of what a row and contexts typically have of it.
template <class Terms>
Terms weigh(const Terms& row, const Terms& contexts) {
  const auto total = [](const Terms& terms) {
    double sum = 0.0;
    for (const double term : terms) sum += term;
    return sum;
  };
  Terms weights{};
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = std::sqrt(nonzero_share(row[i], total(row)) / nonzero_share(contexts[i], total(contexts)));
  }
  return weights;
}
template <class Terms>
Terms weigh(const BoundShares<Terms>& shares) {
  return weigh(mean_row(shares), shares.contexts);
}

/// The same of codes. Of both widths the larger product counts alone: it is least where both are as large.
inline CodeTerms weigh_codes(const BoundShares<CodeTerms>& shares) {
  const CodeTerms row = mean_row(shares);
  const CodeTerms& contexts = shares.contexts;
  const double length = contexts[kInt4Rounded] + contexts[kInt2Rounded];
  const double int4 = nonzero_share(contexts[kInt4Rounded], length);
  const double int2 = nonzero_share(contexts[kInt2Rounded], length);
  const double of_both = std::hypot(row[kInt4Rounded] * int4, row[kInt2Rounded] * int2);
  using Terms = std::array<double, kCodeTerms - 1>;
  const Terms weights =
      weigh(Terms{of_both, row[kCodeContext], row[kBeyondInt4], row[kBeyondInt2]},
            Terms{length, contexts[kCodeContext], contexts[kBeyondInt4], contexts[kBeyondInt2]});
  return {weights[0] / int4, weights[0] / int2, weights[1], weights[2], weights[3]};
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
