// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/certified/building/code_choice.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "support/layers.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"

namespace topksoftmax {
namespace {

using detail::code_widths;
using detail::CodeWidths;
using testing::random_matrix;

constexpr std::size_t kDims[] = {4, 30, 100, 200, 256, 300, 512, 576, 640, 768, 896, 1152, 2048, 5120};

TEST(CodeWidths, AreThoseThatCanBeBuilt) {
  for (const std::size_t dim : kDims) {
    for (const bool dithered : {false, true}) {
      for (const CodeWidths& widths : code_widths(dim, dithered)) {
        EXPECT_GT(widths.prefix, 0U);
        EXPECT_EQ(widths.prefix % 4, 0U);
        EXPECT_EQ(widths.int4 % 32, 0U);
        EXPECT_EQ(widths.int2 % 32, 0U);
        EXPECT_LE(widths.end(), widths.width);
        EXPECT_LE(widths.width, dim);
        EXPECT_TRUE(dithered || widths.int2 == 0);
      }
    }
  }
}

/// Coordinates that the first scan reads at the most, of the choices that `among` says.
template <class Among>
std::size_t most_read(std::size_t dim, const Among& among) {
  std::size_t most = 0;
  for (const CodeWidths& widths : code_widths(dim, false)) {
    if (among(widths)) most = std::max(most, widths.end());
  }
  return most;
}

// Of a multiple of 4; an odd rest has no codes.
TEST(CodeWidths, LeaveNothingToItsLengthInSome) {
  const auto any = [](const CodeWidths&) { return true; };
  const auto short_prefix = [](const CodeWidths& widths) { return widths.prefix <= 64; };
  for (const std::size_t dim : kDims) {
    EXPECT_EQ(most_read(dim, any), dim / 4 * 4);
    if (dim % 4 != 0) continue;
    EXPECT_EQ(most_read(dim, short_prefix), dim);
  }
}

TEST(WidthsWithoutContexts, HaveAllCoordinates) {
  for (const std::size_t dim : kDims) {
    const CodeWidths widths = detail::widths_without_contexts(dim);
    EXPECT_EQ(widths.end(), dim / 4 * 4);
    EXPECT_EQ(widths.width, dim);
    EXPECT_EQ(widths.prefix % 4, 0U);
    EXPECT_LT(widths.prefix, 64U);
  }
  EXPECT_EQ(detail::widths_without_contexts(2).prefix, 4U);
  EXPECT_EQ(detail::widths_without_contexts(2).int4, 0U);
}

/// Contexts that fill all directions alike, of an exact answer that stands out more or less.
struct AllDirections {
  AllDirections(Eigen::Index dim, float leaning)
      : W(random_matrix(1500, dim, 1)), H(random_matrix(400, dim, 2)) {
    for (Eigen::Index i = 0; i < H.rows(); ++i) H.row(i) += leaning * W.row(3 * i);
  }

  RowMajorMatrix W;
  RowMajorMatrix H;
};

TEST(CodeChoice, BoundsFewRowsTwiceWhereContextsFillAllDirections) {
  for (const Eigen::Index dim : {512, 300}) {
    for (const float leaning : {0.0F, 1.0F}) {
      const AllDirections world(dim, leaning);
      const SoftmaxLayer layer = SoftmaxLayer::own(world.W);
      for (const Eigen::Index learned_from : {300, 12, 1}) {
        const auto head = Certified::build(layer, world.H.topRows(learned_from), {.outside_sample = 0});
        std::size_t bounded = 0;
        std::size_t scored = 0;
        for (Eigen::Index i = 300; i < 400; ++i) {
          const TopK top = head->query(world.H.row(i).transpose(), {.k = 5, .probabilities = false});
          EXPECT_TRUE(top.certified);
          bounded += top.work.screened - 1500;
          scored += top.work.candidates;
        }
        EXPECT_LT(bounded, 100U * 675U) << dim << ", " << leaning << ", " << learned_from;
        EXPECT_LT(scored, 100U * 60U) << dim << ", " << leaning << ", " << learned_from;
      }
    }
  }
}

// A common direction has most of what contexts are. In the others a few contexts fit the coordinates that
// were learned from them, and no further ones do.
TEST(CodeChoice, IsNotDeceivedByTheContextsThatWereLearnedFrom) {
  AllDirections world(512, 0.5F);
  world.H.rowwise() += 3.0F * testing::random_vector(512, 7).transpose();
  const SoftmaxLayer layer = SoftmaxLayer::own(world.W);
  for (const Eigen::Index learned_from : {20, 60, 120}) {
    const auto head = Certified::build(layer, world.H.topRows(learned_from), {.outside_sample = 0});
    std::size_t scored = 0;
    for (Eigen::Index i = 300; i < 400; ++i) {
      scored += head->query(world.H.row(i).transpose(), {.k = 5, .probabilities = false}).work.candidates;
    }
    EXPECT_LT(scored, 100U * 60U) << learned_from;
  }
}

}  // namespace
}  // namespace topksoftmax
