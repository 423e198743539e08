// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/l2s/row_codes.hpp"

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <vector>

#include "support/layers.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/workspace.hpp"

namespace topksoftmax {
namespace {

using detail::RowBounds;
using detail::RowCoder;
using detail::RowCodes;
using testing::random_layer;
using testing::random_vector;

RowCodes codes_of(const SoftmaxLayer& layer) {
  RowCoder coder(layer.vocab(), layer.dim());
  std::vector<float> row(layer.dim());
  for (std::size_t token = 0; token < layer.vocab(); ++token) {
    layer.copy_row(token, row.data());
    coder.put(token, layer.rows().bias[token], row);
  }
  return std::move(coder).finish();
}

TEST(RowCodes, BoundEveryLogitFromBothSides) {
  for (const Eigen::Index dim : {1, 5, 64, 200, 513, 4096, 16384}) {
    const SoftmaxLayer layer = random_layer(37, dim, static_cast<unsigned>(dim));
    const RowCodes codes = codes_of(layer);
    Workspace workspace;
    std::vector<float> logits(layer.vocab());
    for (unsigned seed = 0; seed < 20; ++seed) {
      const Eigen::VectorXf h = random_vector(dim, seed, seed % 2 == 0 ? 1.0F : 30.0F);
      kernels::scan(layer.rows(), 0, layer.vocab(), h.data(), logits.data());
      const std::optional<RowBounds> bounds = codes.bound(codes.blocks(), h.data(), layer.dim(), workspace);
      ASSERT_TRUE(bounds);
      for (std::size_t i = 0; i < logits.size(); ++i) {
        EXPECT_LE(logits[i], bounds->estimates[i] + bounds->radii[i]) << dim;
        EXPECT_GE(logits[i], bounds->low[i]) << dim;
        EXPECT_EQ(bounds->low[i], bounds->estimates[i] - bounds->radii[i]);
        // An eighth of what Cauchy–Schwarz says of rows of 200 coordinates without any codes.
        if (dim == 200) {
          EXPECT_LT(bounds->radii[i], 0.125F * h.norm() * static_cast<float>(codes.longest()));
        }
      }
    }
  }
}

TEST(RowCodes, BoundSomeOfTheBlocks) {
  const SoftmaxLayer layer = random_layer(70, 24, 1);
  const RowCodes codes = codes_of(layer);
  const Eigen::VectorXf h = random_vector(24, 2);
  Workspace workspace;
  const RowBounds all = codes.bound(codes.blocks(), h.data(), 24, workspace).value();
  const std::vector<float> estimates(all.estimates, all.estimates + 70);
  const RowBounds some = codes.bound(codes.blocks().part(2, 2), h.data(), 24, workspace).value();
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(some.estimates[i], estimates[32 + i]);
}

TEST(RowCodes, LeaveContextsAloneWhoseProductsLeaveTheFloats) {
  const SoftmaxLayer layer = random_layer(20, 8, 1);
  const RowCodes codes = codes_of(layer);
  Workspace workspace;
  for (const float value : {0.0F, 1e-30F, 1e38F}) {
    const std::vector<float> h(8, value);
    EXPECT_FALSE(codes.bound(codes.blocks(), h.data(), h.size(), workspace)) << value;
  }
  EXPECT_TRUE(RowCodes().empty());
  EXPECT_FALSE(codes.empty());
}

}  // namespace
}  // namespace topksoftmax
