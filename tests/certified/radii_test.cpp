// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/radii.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <random>

namespace topksoftmax {
namespace {

using detail::context_radius;
using detail::row_radius;
using Terms = std::array<double, 3>;

TEST(Radii, ProductsOfRadiiHoldSumsOfProducts) {
  std::mt19937 engine(1);
  std::lognormal_distribution<double> any(0.0, 3.0);
  for (int round = 0; round < 1000; ++round) {
    Terms row, context, weights;
    for (Terms* const terms : {&row, &context, &weights}) {
      for (double& x : *terms) x = any(engine);
    }
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

TEST(Radii, WhatIsKeptOfARowIsNotLess) {
  const Terms terms = {1.0 + 0x1p-40, 1e-50, 3.0};
  const auto kept = detail::BoundShares<Terms>::of_row(terms);
  for (std::size_t i = 0; i < terms.size(); ++i) EXPECT_GE(static_cast<double>(kept[i]), terms[i]);
}

}  // namespace
}  // namespace topksoftmax
