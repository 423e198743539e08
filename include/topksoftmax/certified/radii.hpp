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

/// The same of coordinates in codes: w'₂−ŵ₂ with h'₂ of either width, ŵ₂ with h'₂−ĥ₂ of both.
enum CodeTerm { kInt4Rounded, kInt2Rounded, kCodeContext, kCodeTerms };
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

/// The weights κ: κ² of a term is best at the ratio of what rows and contexts typically have of it.
template <class Terms>
Terms weigh(const BoundShares<Terms>& shares) {
  Terms row_mean{};
  for (const auto& terms : shares.rows) {
    for (std::size_t i = 0; i < terms.size(); ++i) {
      row_mean[i] += static_cast<double>(terms[i]) / static_cast<double>(shares.rows.size());
    }
  }
  const auto total = [](const Terms& terms) {
    double sum = 0.0;
    for (const double term : terms) sum += term;
    return sum;
  };
  const auto share = [](double part, double whole) {
    return whole > 0.0 ? std::max(part / whole, 1e-6) : 1.0;
  };
  Terms weights{};
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] =
        std::sqrt(share(row_mean[i], total(row_mean)) / share(shares.contexts[i], total(shares.contexts)));
  }
  return weights;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
