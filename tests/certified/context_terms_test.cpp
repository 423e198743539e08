// SPDX-License-Identifier: Apache-2.0
//
// What contexts have of each term of their bounds, by float64 products: an index whose weights are zero but
// for one gives that term alone.
#include <gtest/gtest.h>

#include <Eigen/Core>
#include <Eigen/QR>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "support/layers.hpp"
#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/building/coordinates.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/workspace.hpp"

namespace topksoftmax {
namespace {

using detail::CertifiedIndex;
using detail::ContextBounds;
using detail::ContextTransform;
using testing::random_matrix;
using testing::random_vector;

constexpr Eigen::Index kDim = 100;
/// Tokens that are asked for.
constexpr std::size_t kBest = 3;
/// Beyond these, a bound is larger than it need be.
constexpr double kTight = 1.001;

/// An index as it was built, but for the weights of the terms.
CertifiedIndex index_of(const CertifiedOptions& options) {
  const SoftmaxLayer layer = SoftmaxLayer::own(random_matrix(300, kDim, 1), random_vector(300, 2));
  return Certified::build(layer, random_matrix(300, kDim, 3), options)->screener().index();
}

const std::vector<CertifiedOptions>& kinds() {
  static const std::vector<CertifiedOptions> all = {
      {.prefix = 8, .width = 40, .boxes = BoundBoxes::never},
      {.prefix = 8, .width = 40, .boxes = BoundBoxes::always, .box_width = 4},
      {.prefix = 8, .int4_width = 64, .width = 90},
      {.prefix = 8, .int4_width = 64, .boxes = BoundBoxes::always, .box_width = 4},
      {.prefix = 8, .int4_width = 32, .int2_width = 32, .width = 80, .failure_probability = 1e-6}};
  return all;
}

/// Contexts of all directions, of few, and such as are hard to round.
std::vector<Eigen::VectorXf> contexts() {
  std::vector<Eigen::VectorXf> all;
  for (unsigned seed = 10; seed < 20; ++seed) all.push_back(random_vector(kDim, seed, 3.0F));
  for (Eigen::Index j = 0; j < kDim; j += 7) all.push_back(Eigen::VectorXf::Unit(kDim, j));
  return all;
}

/// A context on its way to its bounds, with all that is kept of it.
class Prepared {
 public:
  Prepared(const CertifiedIndex& index, const Eigen::VectorXf& h)
      : coordinates_(detail::coordinate_room(index)),
        n_(detail::short_room(index), std::int16_t{99}),
        bytes_(detail::code_room(index)) {
    float* const projected = coordinates_.data();
    detail::ContextTransform::Application applied = {h.data(), projected,
                                                     projected + index.transform.projected_room()};
    index.transform.apply({&applied, 1}, Workspace());
    detail::prepare(index, applied, kBest, n_.data(), bytes_.data(), bounds_);
    const float* const x = bounds_.coordinates;
    transformed = Eigen::Map<const Eigen::VectorXf>(x, static_cast<Eigen::Index>(index.transform.width()))
                      .cast<double>();
    const kernels::PrefixBlocks& blocks = index.prefixes.blocks();
    kept = Eigen::VectorXd::Zero(static_cast<Eigen::Index>(blocks.width + blocks.code_width()));
    for (std::size_t j = 0; j < blocks.width; ++j) {
      kept[static_cast<Eigen::Index>(j)] = static_cast<double>(bounds_.prefix.scale) * n_[j];
    }
    keep(bounds_.prefix.int4, blocks.width, blocks.int4_width);
    keep(bounds_.prefix.int2, blocks.width + blocks.int4_width, blocks.int2_width);
  }

  const ContextBounds& bounds() const { return bounds_; }

  /// ‖h'−ĥ‖ of what meets tails.
  double rounded_for_tails(std::size_t first, std::size_t end) const {
    double squares = 0.0;
    for (std::size_t j = first; j < end; ++j) {
      const double kept_here = static_cast<double>(bounds_.tail.scale) * bounds_.tail.n[j - first];
      squares += std::pow(transformed[static_cast<Eigen::Index>(j)] - kept_here, 2);
    }
    return std::sqrt(squares);
  }

  Eigen::VectorXd transformed;  ///< h'
  Eigen::VectorXd kept;         ///< ĥ of the prefix and the codes

  double length(std::size_t first, std::size_t end) const {
    return transformed.segment(static_cast<Eigen::Index>(first), static_cast<Eigen::Index>(end - first))
        .norm();
  }
  double rounded(std::size_t first, std::size_t end) const {
    const auto at = static_cast<Eigen::Index>(first);
    const auto count = static_cast<Eigen::Index>(end - first);
    return (transformed.segment(at, count) - kept.segment(at, count)).norm();
  }

 private:
  /// A step halves as often as all shifts up to it say: the scale is that of the last segment.
  void keep(const kernels::CodeContext& context, std::size_t first, std::size_t width) {
    double step = static_cast<double>(context.scale);
    for (std::size_t end = width; end > 0; end -= kernels::CodeContext::kSegment) {
      const std::size_t segment = end / kernels::CodeContext::kSegment - 1;
      for (std::size_t j = segment * kernels::CodeContext::kSegment; j < end; ++j) {
        kept[static_cast<Eigen::Index>(first + j)] = step * context.n[j];
      }
      step = std::ldexp(step, context.shifts[segment]);
    }
  }

  std::vector<float> coordinates_;
  std::vector<std::int16_t> n_;
  std::vector<std::int8_t> bytes_;
  ContextBounds bounds_;
};

template <class Terms>
void only(Terms& weights, std::size_t term) {
  weights.fill(0.0);
  weights[term] = 1.0;
}

void expect_length(float bound, double length) {
  ASSERT_GE(static_cast<double>(bound), length);
  ASSERT_LE(static_cast<double>(bound), length * kTight + 1e-30);
}

TEST(ContextTerms, LengthsOfCoordinatesAreBounded) {
  for (const CertifiedOptions& options : kinds()) {
    CertifiedIndex index = index_of(options);
    const std::size_t prefix = options.prefix;
    const std::size_t int4 = prefix + options.int4_width;
    const std::size_t coded = prefix + options.code_width();
    const std::size_t stored = index.stored_width();
    const std::size_t all = index.transform.width();
    const auto prepared = [&](std::size_t term, std::size_t of_codes, const Eigen::VectorXf& h) {
      for (detail::BoundTerms* const weights :
           {&index.box_weights, &index.prefix_weights, &index.tail_weights}) {
        only(*weights, term);
      }
      only(index.code_weights, of_codes);
      return Prepared(index, h);
    };
    for (const Eigen::VectorXf& h : contexts()) {
      const Prepared longer = prepared(detail::kLonger, detail::kCodeContext, h);
      expect_length(longer.bounds().prefix.radius, longer.length(coded, all));
      expect_length(longer.bounds().tail.radius, longer.length(stored, all));
      const Prepared rounded = prepared(detail::kRounded, detail::kInt4Rounded, h);
      expect_length(rounded.bounds().prefix.radius, rounded.length(0, prefix));
      expect_length(rounded.bounds().tail.radius, rounded.length(0, stored));
      if (index.has_boxes()) {
        expect_length(longer.bounds().box.radius, longer.length(options.box_width, all));
        expect_length(rounded.bounds().box.radius, rounded.length(0, options.box_width));
      }
      if (coded == prefix) continue;
      // Of dithered codes as far as chance reaches.
      const double reach =
          options.failure_probability > 0.0
              ? std::sqrt(std::log(static_cast<double>(kBest) / options.failure_probability) / 6.0)
              : 1.0;
      expect_length(rounded.bounds().prefix.code_radius, reach * rounded.length(prefix, int4));
      const Prepared by_two = prepared(detail::kRounded, detail::kInt2Rounded, h);
      expect_length(by_two.bounds().prefix.code_radius, reach * by_two.length(int4, coded));
      const Prepared beyond_int4 = prepared(detail::kRounded, detail::kBeyondInt4, h);
      expect_length(beyond_int4.bounds().prefix.code_radius, beyond_int4.length(prefix, int4));
      const Prepared beyond_int2 = prepared(detail::kRounded, detail::kBeyondInt2, h);
      expect_length(beyond_int2.bounds().prefix.code_radius, beyond_int2.length(int4, coded));
      // What rounding to eight bits takes: of both kinds of codes, in prefixes and in tails.
      const double lost = longer.rounded(prefix, coded);
      const Prepared of_tails = prepared(detail::kOfCodes, detail::kCodeContext, h);
      for (const float bound : {longer.bounds().prefix.code_radius, of_tails.bounds().tail.radius}) {
        ASSERT_GE(static_cast<double>(bound), lost);
        ASSERT_LE(static_cast<double>(bound), 1.01 * lost + 1e-30);
      }
    }
  }
}

TEST(ContextTerms, WhatLiesOutsideOfTheCoordinatesIsBounded) {
  for (const CertifiedOptions& options : kinds()) {
    CertifiedIndex index = index_of(options);
    only(index.prefix_weights, detail::kOutside);
    only(index.tail_weights, detail::kOutside);
    only(index.box_weights, detail::kOutside);
    const bool whole = index.transform.in_bytes();  // what rows leave may have any direction
    const Eigen::MatrixXd Q =
        whole ? Eigen::MatrixXd(Eigen::MatrixXd::Zero(kDim, 0))
              : detail::stored(index.transform.Q(), index.transform.room(), options.width);
    for (const Eigen::VectorXf& h : contexts()) {
      const Eigen::VectorXd all = h.cast<double>();
      const double outside = whole ? all.norm() : (all - Q * Q.colPivHouseholderQr().solve(all)).norm();
      const Prepared prepared(index, h);
      const ContextBounds& bounds = prepared.bounds();
      ASSERT_GE(static_cast<double>(bounds.prefix.radius), outside);
      ASSERT_GE(static_cast<double>(bounds.tail.radius), outside);
      if (index.has_boxes()) {
        ASSERT_GE(static_cast<double>(bounds.box.radius), outside);
      }
      ASSERT_LE(static_cast<double>(bounds.prefix.radius), outside + 0.1 * all.norm());
    }
  }
}

/// Of E, what it has beside the errors of the transform and of products, which have tests of their own.
double error_beside(const CertifiedIndex& index, const Prepared& prepared, const Eigen::VectorXf& h,
                    float bound) {
  const ContextTransform& transform = index.transform;
  std::vector<float> projected(transform.projected_room());
  std::vector<float> transformed(transform.room());
  EXPECT_TRUE(prepared.bounds().usable);
  return static_cast<double>(bound) -
         transform.error(transform.apply({h.data(), projected.data(), transformed.data()}, Workspace()));
}

TEST(ContextTerms, ErrorsHaveTheRoundingOfThePrefix) {
  for (const CertifiedOptions& options : kinds()) {
    CertifiedIndex index = index_of(options);
    only(index.box_weights, detail::kRounding);
    only(index.prefix_weights, detail::kRounding);
    only(index.tail_weights, detail::kRounding);
    for (const Eigen::VectorXf& h : contexts()) {
      const Prepared prepared(index, h);
      const double most = 0.5 * static_cast<double>(prepared.bounds().prefix.scale) *
                          std::sqrt(static_cast<double>(options.prefix));
      ASSERT_LE(prepared.rounded(0, options.prefix), 1.02 * most);
      ASSERT_GE(error_beside(index, prepared, h, prepared.bounds().prefix.radius), most);
      ASSERT_GE(error_beside(index, prepared, h, prepared.bounds().tail.radius), most);
      if (index.has_boxes()) {
        ASSERT_GE(error_beside(index, prepared, h, prepared.bounds().box.radius), most);
      }
    }
  }
}

TEST(ContextTerms, ErrorsOfTailsHaveTheirRoundingToo) {
  for (const CertifiedOptions& options : kinds()) {
    CertifiedIndex index = index_of(options);
    only(index.tail_weights, detail::kRounding);
    const std::size_t stored = index.stored_width();
    for (const Eigen::VectorXf& h : contexts()) {
      const Prepared prepared(index, h);
      const auto most = [](float scale, std::size_t count) {
        return 0.5 * static_cast<double>(scale) * std::sqrt(static_cast<double>(count));
      };
      const double of_prefix = most(prepared.bounds().prefix.scale, options.prefix);
      const double of_tail = most(prepared.bounds().tail.scale, stored - options.prefix);
      ASSERT_LE(prepared.rounded_for_tails(options.prefix, stored), 1.02 * of_tail);
      ASSERT_GE(error_beside(index, prepared, h, prepared.bounds().tail.radius), of_prefix + of_tail);
    }
  }
}

TEST(ContextTerms, WhatMeetsTailsEndsInZeros) {
  for (const CertifiedOptions& options : kinds()) {
    const CertifiedIndex index = index_of(options);
    const std::size_t width = index.tails.tails().width;
    for (const Eigen::VectorXf& h : contexts()) {
      const Prepared prepared(index, h);
      for (std::size_t j = width; j < index.tails.tails().row_bytes(); ++j) {
        ASSERT_EQ(prepared.bounds().tail.n[j], 0) << j;
      }
    }
  }
}

TEST(ContextTerms, ErrorsHaveTheRoundingOfTheDithersOffset) {
  CertifiedIndex index = index_of(kinds().back());
  only(index.prefix_weights, detail::kRounding);
  const std::size_t prefix = index.prefixes.blocks().width;
  for (const Eigen::VectorXf& h : contexts()) {
    const Prepared prepared(index, h);
    const kernels::PrefixContext& context = prepared.bounds().prefix;
    // What the kernels take off for the dither, and what it is: the difference counts at half of a row's
    // step, which is below half of the row.
    double lost = 0.0;
    std::size_t first = 0;
    for (const auto& [codes, width] : {std::pair(context.int4, index.options.int4_width),
                                       std::pair(context.int2, index.options.int2_width)}) {
      double taken = 0.0;
      for (std::size_t j = 0; j < width; ++j) {
        taken += 2.0 * static_cast<double>(index.dither.t()[first + j]) *
                 prepared.kept[static_cast<Eigen::Index>(prefix + first + j)];
      }
      const double off = std::abs(taken - static_cast<double>(codes.scale) * codes.offset);
      ASSERT_LE(off, 0.5 * static_cast<double>(codes.scale) * (1.0 + 1e-6));
      lost += 0.25 * static_cast<double>(codes.scale);
      first += width;
    }
    const double of_prefix =
        0.5 * static_cast<double>(context.scale) * std::sqrt(static_cast<double>(prefix));
    ASSERT_GE(error_beside(index, prepared, h, context.radius), of_prefix + lost);
  }
}

TEST(ContextTerms, OnlyContextsWhoseProductsAreFloatsAreBounded) {
  CertifiedIndex index = index_of(kinds().front());
  const Eigen::VectorXf h = random_vector(kDim, 5).normalized();
  const auto is_usable = [&](float length) { return Prepared(index, h * length).bounds().usable; };
  EXPECT_TRUE(is_usable(1.0F));
  EXPECT_TRUE(is_usable(1.1e-15F));
  EXPECT_FALSE(is_usable(0.9e-15F));
  EXPECT_TRUE(is_usable(0.9e18F));
  EXPECT_FALSE(is_usable(1.1e18F));
  index.longest_row = 1e37;
  EXPECT_TRUE(is_usable(9.0F));
  EXPECT_FALSE(is_usable(11.0F));
  index.largest_bias = 0.5e38;
  EXPECT_FALSE(is_usable(9.0F));
}

}  // namespace
}  // namespace topksoftmax
