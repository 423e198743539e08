// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/radii.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

namespace topksoftmax {
namespace {

using detail::code_context_radius;
using detail::CodeTerm;
using detail::CodeTerms;
using detail::context_radius;
using detail::kBeyondInt2;
using detail::kBeyondInt4;
using detail::kCodeContext;
using detail::kInt2Rounded;
using detail::kInt4Rounded;
using detail::row_radius;
using Terms = std::array<double, 3>;

/// Terms of all sizes.
template <class AnyTerms>
AnyTerms any_terms(std::mt19937& engine) {
  std::lognormal_distribution<double> any(0.0, 3.0);
  AnyTerms terms;
  for (double& x : terms) x = any(engine);
  return terms;
}

TEST(Radii, ProductsOfRadiiHoldSumsOfProducts) {
  std::mt19937 engine(1);
  for (int round = 0; round < 1000; ++round) {
    Terms row = any_terms<Terms>(engine);
    const Terms context = any_terms<Terms>(engine);
    const Terms weights = any_terms<Terms>(engine);
    double sum = 0.0;
    for (std::size_t i = 0; i < row.size(); ++i) sum += row[i] * context[i];
    const double bound = row_radius(row, weights) * static_cast<double>(context_radius(context, weights));
    ASSERT_GE(bound, sum * (1.0 + 0x1p-19));
    // Parallel: all of the bound is needed.
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = context[i] * weights[i] * weights[i];
    sum = 0.0;
    for (std::size_t i = 0; i < row.size(); ++i) sum += row[i] * context[i];
    const double tight = row_radius(row, weights) * static_cast<double>(context_radius(context, weights));
    ASSERT_GE(tight, sum * (1.0 + 0x1p-19));  // the rounding of estimate + radius
    ASSERT_LE(tight, sum * (1.0 + 0x1p-16));
  }
}

TEST(Radii, OfBothWidthsOfCodesTheSquaresAddUp) {
  std::mt19937 engine(1);
  for (int round = 0; round < 1000; ++round) {
    const CodeTerms row = any_terms<CodeTerms>(engine);
    const CodeTerms context = any_terms<CodeTerms>(engine);
    const CodeTerms weights = any_terms<CodeTerms>(engine);
    double sum =
        std::hypot(row[kInt4Rounded] * context[kInt4Rounded], row[kInt2Rounded] * context[kInt2Rounded]);
    for (const CodeTerm term : {kCodeContext, kBeyondInt4, kBeyondInt2}) sum += row[term] * context[term];
    const double bound =
        row_radius(row, weights) * static_cast<double>(code_context_radius(context, weights));
    ASSERT_GE(bound, sum * (1.0 + 0x1p-19));
  }
}

// With the weights that suit them, no more than the squares: the sum of both widths is a fifth more here.
TEST(Radii, WeightsOfCodesMakeBothWidthsCount) {
  detail::BoundShares<CodeTerms> shares;
  const CodeTerms row = {0.06, 0.2, 4.0, 0.01, 0.04};
  const CodeTerms context = {15.0, 10.0, 0.02, 8.0, 5.0};
  shares.rows.assign(10, detail::BoundShares<CodeTerms>::of_row(row));
  for (std::size_t i = 0; i < context.size(); ++i) shares.contexts[i] = 7.0 * context[i];
  const CodeTerms weights = detail::weigh_codes(shares);
  const double sum =
      std::hypot(row[kInt4Rounded] * context[kInt4Rounded], row[kInt2Rounded] * context[kInt2Rounded]) +
      row[kCodeContext] * context[kCodeContext] + row[kBeyondInt4] * context[kBeyondInt4] +
      row[kBeyondInt2] * context[kBeyondInt2];
  const double bound = row_radius(row, weights) * static_cast<double>(code_context_radius(context, weights));
  EXPECT_GE(bound, sum);
  EXPECT_LE(bound, 1.001 * sum);
}

TEST(Radii, WeightsOfCodesThatAreMissingAreNumbers) {
  detail::BoundShares<CodeTerms> shares;
  shares.rows.assign(2, detail::BoundShares<CodeTerms>::of_row({0.5, 0.0, 1.0, 0.0, 0.0}));
  for (const double length : {0.0, 3.0}) {  // without contexts, and with some
    shares.contexts = {length, 0.0, 0.1 * length, length, 0.0};
    for (const double weight : detail::weigh_codes(shares)) {
      EXPECT_TRUE(std::isfinite(weight));
      EXPECT_GT(weight, 0.0);
    }
  }
}

TEST(Radii, WhatIsKeptOfARowIsNotLess) {
  const Terms terms = {1.0 + 0x1p-40, 1e-50, 3.0};
  const auto kept = detail::BoundShares<Terms>::of_row(terms);
  for (std::size_t i = 0; i < terms.size(); ++i) EXPECT_GE(static_cast<double>(kept[i]), terms[i]);
}

}  // namespace
}  // namespace topksoftmax
