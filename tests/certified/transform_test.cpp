// SPDX-License-Identifier: Apache-2.0
//
// What a context's bounds must allow for, term by term: each is what the worst roundings add up to, and is
// asked for where nothing else could stand in for it.
#include "topksoftmax/certified/transform.hpp"

#include <gtest/gtest.h>

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "support/layers.hpp"
#include "topksoftmax/certified/building/coordinates.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/rows/context_rounding.hpp"
#include "topksoftmax/workspace.hpp"

namespace topksoftmax {
namespace {

using detail::ContextTransform;
using detail::Float16;
using detail::LengthBounds;

constexpr double kUnit = 0x1p-24;  // half of an ulp of 1
constexpr std::size_t kDim = 100;
constexpr std::size_t kWidth = 24;

/// Of zeros: only sizes and norms count here.
ContextTransform transform_of(bool whole, double unorthogonality, double norm) {
  const std::size_t width = whole ? kDim : kWidth;
  const std::size_t room = ContextTransform::room_for(width);
  StoredArray<Float16> Q = StoredArray<Float16>::own(std::vector<Float16>(kDim * room));
  StoredArray<float> R;
  if (!whole) R = StoredArray<float>::own(std::vector<float>(width * room));
  return {kDim, width, std::move(Q), std::move(R), unorthogonality, norm};
}

LengthBounds exactly(double length) {
  return {length, length};
}

/// Of the projection, for a context of length 1: `width` products of kDim terms.
double projection_error() {
  return static_cast<double>(kernels::combine_roundings(kDim)) * kUnit *
         std::sqrt(static_cast<double>(kWidth));
}

TEST(ContextTransform, ErrorsHaveThoseOfTheExactProduct) {
  const ContextTransform transform = transform_of(false, 0.0, 0.0);
  EXPECT_GE(transform.error({exactly(3.0), {}, {}}), 3.0 * static_cast<double>(kDim + 2) * kUnit);
}

TEST(ContextTransform, ErrorsHaveThoseOfBothTransforms) {
  const ContextTransform transform = transform_of(false, 0.0, 1e6);
  EXPECT_GE(transform.error({exactly(1.0), {}, {}}), 1e6 * projection_error());
  EXPECT_GE(transform.error({{}, exactly(1.0), {}}),
            1e6 * static_cast<double>(kernels::combine_roundings(kWidth)) * kUnit);
  const ContextTransform whole = transform_of(true, 0.0, 1e6);
  EXPECT_GE(whole.error({exactly(1.0), {}, {}}),
            1e6 * static_cast<double>(kernels::combine_roundings(kDim)) * kUnit);
}

TEST(ContextTransform, OutsideIsAllThatMayBeMissing) {
  const ContextTransform transform = transform_of(false, 0.0, 1.0);
  EXPECT_GE(transform.outside({exactly(1.0), exactly(0.6), {}}), 0.8);
  EXPECT_LE(transform.outside({exactly(1.0), exactly(0.6), {}}), 0.8 * (1.0 + 1e-4));
  // c is wrong by its roundings: a context that seems to lie inside may reach out by their square root.
  EXPECT_GE(transform.outside({exactly(1.0), exactly(1.0), {}}),
            std::sqrt(1.0 - std::pow(1.0 - projection_error(), 2)));
  // Rows of Q that are too long, or not at right angles, show more of h than there is.
  const ContextTransform skew = transform_of(false, 0.21, 1.0);
  EXPECT_GE(skew.outside({exactly(1.0), exactly(1.0), {}}), std::sqrt(1.0 - 1.0 / 1.21));
  EXPECT_GE(transform_of(true, 0.0, 1.0).outside({exactly(2.0), {}, {}}), 2.0);
  // Rounding may have made the context longer.
  EXPECT_GE(transform_of(true, 0.0, 1.0).outside({exactly(2.0), {}, {}, 0.25}), 2.25);
}

TEST(ContextTransform, TheIdentityLeavesContextsAsTheyAre) {
  const ContextTransform none = ContextTransform::identity(kDim);
  EXPECT_EQ(none.bytes(), 0U);
  EXPECT_TRUE(none.is_whole());
  const Eigen::VectorXf h = testing::random_vector(kDim, 2);
  std::vector<float> worked_in(none.projected_room());
  std::vector<float> transformed(none.room(), 7.0F);
  const ContextTransform::Lengths lengths =
      none.apply({h.data(), worked_in.data(), transformed.data()}, Workspace());
  std::vector<float> expected(none.room(), 0.0F);
  std::copy(h.begin(), h.end(), expected.begin());
  EXPECT_EQ(transformed, expected);
  EXPECT_EQ(none.outside(lengths), 0.0);
  const double length = h.cast<double>().norm();
  EXPECT_GE(none.error(lengths), length * static_cast<double>(kDim + 2) * kUnit);
  EXPECT_LE(none.error(lengths), 1.1 * length * static_cast<double>(kDim + 2) * kUnit);
}

TEST(ContextTransform, AWholeTransformMeetsARoundedContextExactly) {
  constexpr auto kSize = static_cast<Eigen::Index>(kDim);
  const Eigen::MatrixXd B = testing::random_matrix(kSize, kSize, 1).cast<double>();
  const ContextTransform whole = detail::transform_of({Eigen::MatrixXd::Identity(kSize, kSize), B});
  ASSERT_TRUE(whole.in_bytes());
  const Eigen::MatrixXd stored = detail::stored(whole.whole(), kDim);
  std::vector<Eigen::VectorXf> contexts = {testing::random_vector(kSize, 2), Eigen::VectorXf::Unit(kSize, 5),
                                           testing::random_vector(kSize, 3, 1e-20F)};
  contexts.push_back(testing::random_vector(kSize, 4));
  contexts.back()[7] = 300.0F;
  for (const Eigen::VectorXf& h : contexts) {
    std::vector<std::int16_t> n(kDim);
    const auto step = static_cast<double>(detail::round_to_shorts(h.data(), kDim, n.data()));
    const Eigen::VectorXd rounded =
        step *
        Eigen::Map<const Eigen::Matrix<std::int16_t, Eigen::Dynamic, 1>>(n.data(), kSize).cast<double>();
    std::vector<float> worked_in(whole.projected_room());
    std::vector<float> transformed(whole.room());
    const ContextTransform::Lengths lengths =
        whole.apply({h.data(), worked_in.data(), transformed.data()}, Workspace());
    const double lost = (h.cast<double>() - rounded).norm();
    EXPECT_GE(lengths.lost, lost);
    EXPECT_LE(lengths.lost, 0.52 * step * std::sqrt(static_cast<double>(kDim)));
    EXPECT_GE(whole.outside(lengths), rounded.norm());
    // What is rounded is h, the coordinates on their way to floats, and the exact kernel's sums.
    const double as_floats =
        Eigen::Map<const Eigen::VectorXf>(transformed.data(), kSize).cast<double>().norm();
    EXPECT_GE(whole.error(lengths), lengths.lost + kUnit * (3.0 * as_floats + static_cast<double>(kDim + 2) *
                                                                                  h.cast<double>().norm()));
    for (Eigen::Index i = 0; i < kSize; ++i) {
      const double exact = stored.row(i).dot(rounded);
      EXPECT_NEAR(static_cast<double>(transformed[static_cast<std::size_t>(i)]), exact,
                  3.0 * kUnit * std::abs(exact) + 1e-15 * rounded.norm())
          << i;
    }
  }
}

TEST(ContextTransform, NothingIsLeftBehindAContextThatFillsNoGroup) {
  constexpr Eigen::Index kSize = 97;  // rows are read by four coordinates
  const Eigen::MatrixXd B = testing::random_matrix(kSize, kSize, 1).cast<double>();
  const ContextTransform whole = detail::transform_of({Eigen::MatrixXd::Identity(kSize, kSize), B});
  ASSERT_TRUE(whole.in_bytes());
  ASSERT_EQ(whole.whole().blocks().width, 100U);
  const Eigen::VectorXf h = testing::random_vector(kSize, 2);
  std::vector<float> transformed(whole.room());
  std::vector<float> clean(whole.projected_room());
  whole.apply({h.data(), clean.data(), transformed.data()}, Workspace());
  const std::vector<float> right = transformed;
  std::vector<float> used(whole.projected_room());
  std::memset(used.data(), 0x7f, used.size() * sizeof(float));  // as another context may have left it
  whole.apply({h.data(), used.data(), transformed.data()}, Workspace());
  EXPECT_EQ(transformed, right);
  std::array<std::int16_t, 100> n;
  std::memcpy(n.data(), used.data(), sizeof(n));
  for (std::size_t j = 97; j < n.size(); ++j) EXPECT_EQ(n[j], 0) << j;
}

/// Contexts are transformed together as they are alone, where RQ is more than they meet at a time too.
TEST(ContextTransform, ABatchIsTransformedAsEachContextIs) {
  constexpr std::size_t kBatch = 3;
  for (const Eigen::Index size : {97, 760}) {
    const Eigen::MatrixXd B = testing::random_matrix(size, size, 1).cast<double>();
    const ContextTransform whole = detail::transform_of({Eigen::MatrixXd::Identity(size, size), B});
    ASSERT_TRUE(whole.in_bytes());
    EXPECT_EQ(whole.bytes() > kernels::kPartBytes, size == 760);
    std::vector<Eigen::VectorXf> contexts;
    std::vector<std::vector<float>> worked_in(kBatch, std::vector<float>(whole.projected_room()));
    std::vector<std::vector<float>> transformed(kBatch, std::vector<float>(whole.room(), 7.0F));
    std::vector<ContextTransform::Application> batch;
    for (std::size_t q = 0; q < kBatch; ++q) {
      contexts.push_back(testing::random_vector(size, static_cast<unsigned>(2 + q)));
      batch.push_back({contexts[q].data(), worked_in[q].data(), transformed[q].data()});
    }
    whole.apply(batch, Workspace());
    for (std::size_t q = 0; q < kBatch; ++q) {
      std::vector<float> alone(whole.room(), 7.0F);
      const ContextTransform::Lengths lengths =
          whole.apply({contexts[q].data(), worked_in[q].data(), alone.data()}, Workspace());
      EXPECT_EQ(transformed[q], alone);
      EXPECT_EQ(batch[q].lengths.context.high, lengths.context.high);
      EXPECT_EQ(batch[q].lengths.transformed.low, lengths.transformed.low);
      EXPECT_EQ(batch[q].lengths.lost, lengths.lost);
    }
  }
}

TEST(ContextTransform, LengthsAreBoundedFromBothSides) {
  for (const std::size_t count : {1U, 7U, 64U, 1000U}) {
    std::vector<float> x(count);
    for (std::size_t j = 0; j < count; ++j) x[j] = 1.0F + static_cast<float>(j * 37 % 101) / 100.0F;
    const auto square = static_cast<double>(kernels::squared_length(x.data(), count));
    const double error = static_cast<double>(count + 3) * kUnit;  // which squared_length() promises
    const LengthBounds length = detail::length_of(x.data(), count);
    EXPECT_GE(length.high * length.high, square * (1.0 + error));
    EXPECT_LE(length.low * length.low, square * (1.0 - error));
    EXPECT_LE(length.high, length.low * (1.0 + 3.0 * error));
  }
}

TEST(ContextTransform, LengthsCountWhatSquaresLose) {
  const std::vector<float> x(50, 1e-24F);  // its square is no float
  const LengthBounds length = detail::length_of(x.data(), x.size());
  EXPECT_GE(length.high, 1e-24 * std::sqrt(50.0));
  EXPECT_LE(length.low, 1e-24 * std::sqrt(50.0));
}

}  // namespace
}  // namespace topksoftmax
