// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "topksoftmax/top_k.hpp"
#include "topksoftmax/top_k_softmax.hpp"

namespace topksoftmax::testing {

/// Equal, or both NaN.
inline bool same(double x, double y) {
  return x == y || (std::isnan(x) && std::isnan(y));
}

/// Both answers are the same, bit for bit; the work that they took may differ.
inline void expect_same(const TopK& a, const TopK& b) {
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.logits, b.logits);
  EXPECT_EQ(a.normalizer, b.normalizer);
  EXPECT_EQ(a.certified, b.certified);
  EXPECT_TRUE(same(a.log_z, b.log_z)) << a.log_z << " " << b.log_z;
  EXPECT_TRUE(same(a.log_z_low, b.log_z_low) && same(a.log_z_high, b.log_z_high));
}

/// Both answers are the same, and took the same work.
inline void expect_same_and_work(const TopK& a, const TopK& b) {
  expect_same(a, b);
  EXPECT_EQ(a.work.candidates, b.work.candidates);
  EXPECT_EQ(a.work.bytes_read, b.work.bytes_read);
}

/// Both answer queries of all kinds alike, bit for bit.
inline void expect_same_answers(const TopKSoftmax& a, const TopKSoftmax& b, const RowMajorMatrix& contexts) {
  TokenMask mask(a.layer().vocab());
  for (std::size_t id = 0; id < a.layer().vocab(); id += 3) mask.allow(static_cast<TokenId>(id));
  const std::array biases = {TokenBias{1, 2.0F}, TokenBias{6, -1.0F}};
  const std::span bias = std::span(biases).first(a.layer().vocab() > 6 ? 2 : 0);
  for (Eigen::Index i = 0; i < contexts.rows(); ++i) {
    const Eigen::VectorXf h = contexts.row(i);
    for (const std::size_t k : {1U, 5U, 50U}) {
      expect_same_and_work(a.query(h, {.k = k}), b.query(h, {.k = k}));
      expect_same_and_work(a.query(h, {.k = k, .allowed = mask, .logit_bias = bias}),
                           b.query(h, {.k = k, .allowed = mask, .logit_bias = bias}));
    }
    expect_same_and_work(a.query(h, {.k = 5, .effort = 3}), b.query(h, {.k = 5, .effort = 3}));
  }
  const std::vector<TopK> of_a = a.query_batch(contexts, {.k = 5});
  const std::vector<TopK> of_b = b.query_batch(contexts, {.k = 5});
  for (std::size_t i = 0; i < of_a.size(); ++i) expect_same_and_work(of_a[i], of_b[i]);
}

}  // namespace topksoftmax::testing
