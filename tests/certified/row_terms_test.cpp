// SPDX-License-Identifier: Apache-2.0
//
// What rows have of each term of their bounds, against what is stored of them: by plain float64 products, and
// with contexts that make one term after the other count most.
#include <gtest/gtest.h>

#include <Eigen/Core>
#include <Eigen/QR>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "support/layers.hpp"
#include "topksoftmax/certified/building/box_maker.hpp"
#include "topksoftmax/certified/building/context_coordinates.hpp"
#include "topksoftmax/certified/building/coordinates.hpp"
#include "topksoftmax/certified/building/packing.hpp"
#include "topksoftmax/certified/building/row_projector.hpp"
#include "topksoftmax/certified/index.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/rows/layer_moments.hpp"

namespace topksoftmax {
namespace {

using detail::BoundTerms;
using detail::CertifiedIndex;
using detail::CodeTerms;
using detail::ContextCoordinates;
using detail::ContextTransform;
using testing::random_matrix;

constexpr Eigen::Index kVocab = 80;
constexpr Eigen::Index kDim = 100;
constexpr SerialExecutor kAlone;

ContextTransform some_transform(const SoftmaxLayer& layer, const RowMajorMatrix& contexts,
                                std::size_t width) {
  const detail::LearnedCoordinates learned(detail::layer_moments(layer, kAlone).gram(), contexts,
                                           BoundCoordinates::balanced, kAlone);
  return detail::transform_of(learned.basis(width, kAlone));
}

/// Contexts of which all length is in one place.
struct Lengths {
  const char* where;
  std::size_t first;  ///< coordinate
  std::size_t count;
  double outside;
  double errors;
};

/// What is left out of one row, and what the doc's table says of it.
struct RowTerms {
  BoundTerms box{};
  BoundTerms prefix{};
  BoundTerms tail{};
  CodeTerms codes{};
};

/// w' of a row, and the length of what that leaves.
struct Coordinates {
  Eigen::VectorXd inside;
  double outside;
};

Coordinates solved(const Eigen::MatrixXd& basis, const Eigen::VectorXd& w) {
  const Eigen::VectorXd inside = basis.colPivHouseholderQr().solve(w);
  return {inside, (w - basis * inside).norm()};
}

/// The terms of a row by what is stored of its coordinates.
RowTerms terms_of(const CertifiedIndex& index, const Eigen::VectorXd& w, const Coordinates& coordinates,
                  std::size_t place) {
  const auto& [inside, outside] = coordinates;
  const kernels::PrefixBlocks& blocks = index.prefixes.blocks();
  const auto width = static_cast<std::size_t>(inside.size());
  const std::size_t prefix = blocks.width;
  const std::size_t coded = prefix + blocks.code_width();
  Eigen::VectorXd kept = Eigen::VectorXd::Zero(inside.size());
  for (std::size_t j = 0; j < prefix; ++j) {
    kept[static_cast<Eigen::Index>(j)] = index.prefixes.scale(place) * index.prefixes.coordinate(place, j);
  }
  const kernels::PrefixCodes kinds[] = {blocks.int4(), blocks.int2()};
  double steps[] = {0.0, 0.0};
  double beyond[] = {0.0, 0.0};
  for (std::size_t j = prefix; j < coded; ++j) {
    const std::size_t behind = j - prefix;
    const std::size_t kind = behind < blocks.int4_width ? 0 : 1;
    const std::size_t at = kind == 0 ? behind : behind - blocks.int4_width;
    const double scale = index.prefixes.scale(place, kinds[kind]);
    const int largest = (1 << kinds[kind].bits) - 1;
    const double t = static_cast<double>(index.dither.t()[behind]);
    const int u = index.prefixes.code(place, kinds[kind], at);
    kept[static_cast<Eigen::Index>(j)] = scale * (2 * u - largest) - 2.0 * scale * t;
    steps[kind] = 2.0 * scale;
    beyond[kind] +=
        std::pow(std::max(std::abs(inside[static_cast<Eigen::Index>(j)]) - scale * largest, 0.0), 2);
  }
  const auto part = [](const Eigen::VectorXd& x, std::size_t first, std::size_t end) {
    return x.segment(static_cast<Eigen::Index>(first), static_cast<Eigen::Index>(end - first)).norm();
  };
  const Eigen::VectorXd rounded = inside - kept;
  const std::size_t int4 = prefix + blocks.int4_width;
  RowTerms terms;
  const double code_length = part(kept, prefix, coded);
  if (index.dither.is_random()) {
    terms.codes = {steps[0], steps[1], code_length, std::sqrt(beyond[0]), std::sqrt(beyond[1])};
  } else {
    terms.codes = {part(rounded, prefix, int4), part(rounded, int4, coded), code_length};
  }
  const kernels::PrefixTails& tails = index.tails.tails();
  Eigen::VectorXd all = kept;
  const std::size_t tail_end = index.options.width;
  for (std::size_t j = prefix; j < tail_end; ++j) {
    const std::byte* const row = tails.row(place);
    const int q = static_cast<std::int8_t>(row[j - prefix]);
    all[static_cast<Eigen::Index>(j)] += static_cast<double>(tails.footer(row).scale) * q;
  }
  // ŵ of the prefix and the tail: that of the codes counts apart.
  Eigen::VectorXd stored = all;
  for (std::size_t j = prefix; j < coded; ++j) {
    stored[static_cast<Eigen::Index>(j)] -= kept[static_cast<Eigen::Index>(j)];
  }
  const double errors = std::max({w.norm(), inside.norm(), stored.norm()}) + code_length;
  const std::size_t box = index.options.box_width;
  terms.box = {part(inside, box, width), outside, part(rounded, 0, box), errors, 0.0};
  terms.prefix = {part(inside, coded, width), outside, part(rounded, 0, prefix), errors, 0.0};
  terms.tail = {part(inside, tail_end, width), outside, part(inside - all, 0, tail_end), errors, code_length};
  return terms;
}

template <class Terms>
double radius_of(const Terms& terms, const Terms& weights) {
  double sum = 0.0;
  for (std::size_t i = 0; i < terms.size(); ++i) sum += std::pow(terms[i] / weights[i], 2);
  return std::sqrt(sum);
}

/// The boxes' centres, as they are stored.
detail::PrefixStore box_centres(const CertifiedIndex& index) {
  const kernels::PrefixBlocks& blocks = index.boxes().centres;
  return {StoredArray<std::byte>::borrow({blocks.data, blocks.bytes()}), blocks.rows, blocks.width};
}

/// The largest share that each term has of a row's squared radius, over some rows.
template <class Terms>
struct Shares {
  Terms largest{};

  void take(const Terms& terms, const Terms& weights) {
    const double whole = std::pow(radius_of(terms, weights), 2);
    for (std::size_t i = 0; i < terms.size(); ++i) {
      if (whole > 0.0) largest[i] = std::max(largest[i], std::pow(terms[i] / weights[i], 2) / whole);
    }
  }
};

/// Every term of such rows must have counted for more than a stored radius is rounded by.
template <class Terms>
void expect_all_counted(const Shares<Terms>& shares, std::initializer_list<std::size_t> terms) {
  for (const std::size_t term : terms) EXPECT_GT(shares.largest[term], 0.05) << "term " << term;
}

/// A stored radius: not below, and no more above than rounding explains.
void expect_radius(double stored, double wanted, const std::string& what) {
  ASSERT_GE(stored, wanted * (1.0 - 1e-9)) << what;
  ASSERT_LE(stored, wanted * (1.0 + 0x1p-6) + 1e-30) << what;
}

struct Seen {
  Shares<BoundTerms> box;
  Shares<BoundTerms> prefix;
  Shares<BoundTerms> tail;
  Shares<CodeTerms> codes;
};

/// Of rows in `coordinates` of which the options' width are stored.
Seen expect_terms(const CertifiedOptions& options, std::size_t coordinates) {
  const RowMajorMatrix W = random_matrix(kVocab, kDim, 1);
  const SoftmaxLayer layer = SoftmaxLayer::own(W, testing::random_vector(kVocab, 2));
  const RowMajorMatrix contexts = random_matrix(200, kDim, 3);
  const ContextTransform transform = some_transform(layer, contexts, coordinates);
  const Eigen::MatrixXd basis = detail::basis_of(transform);
  const detail::RowProjector projector(layer, transform);
  const std::size_t coded = options.prefix + options.code_width();
  const Lengths places[] = {{"longer", coded, options.width - coded, 0.0, 0.0},
                            {"outside", 0, 0, 1.0, 0.0},
                            {"prefix", 0, options.prefix, 0.0, 0.0},
                            {"box", 0, options.box_width, 0.0, 0.0},
                            {"errors", 0, 0, 0.0, 1.0},
                            {"int4", options.prefix, options.int4_width, 0.0, 0.0},
                            {"int2", options.prefix + options.int4_width, options.int2_width, 0.0, 0.0},
                            {"behind", options.width, coordinates - options.width, 0.0, 0.0}};
  Seen seen;
  for (const Lengths& lengths : places) {
    ContextCoordinates typical(contexts.topRows(1), transform, kAlone);
    typical.inside.setZero();
    typical.inside
        .middleCols(static_cast<Eigen::Index>(lengths.first), static_cast<Eigen::Index>(lengths.count))
        .setOnes();
    typical.outside.setConstant(lengths.outside);
    typical.errors.setConstant(lengths.errors);
    CertifiedIndex index;
    index.options = options;
    index.transform = transform;
    detail::RowPacker(layer, projector, index.order, options).pack(typical, {}, kAlone, index);
    EXPECT_GE(index.longest_row, W.cast<double>().rowwise().norm().maxCoeff() * (1.0 - 1e-12));
    EXPECT_GE(index.largest_bias, static_cast<double>(layer.biases().cwiseAbs().maxCoeff()));
    for (std::size_t place = 0; place < index.rows(); ++place) {
      const Eigen::VectorXd w = W.row(static_cast<Eigen::Index>(place)).transpose().cast<double>();
      // What float32 makes of a whole transform has a test of its own.
      const detail::RowCoordinates kept = projector.at(std::vector<TokenId>{static_cast<TokenId>(place)});
      const RowTerms terms =
          terms_of(index, w,
                   transform.is_whole() ? Coordinates{kept.inside.row(0).transpose(), kept.outside[0]}
                                        : solved(basis, w),
                   place);
      const std::string what = std::string(lengths.where) + ", row " + std::to_string(place);
      expect_radius(index.prefixes.radius(place), radius_of(terms.prefix, index.prefix_weights), what);
      const kernels::PrefixTails& tails = index.tails.tails();
      expect_radius(static_cast<double>(tails.footer(tails.row(place)).radius),
                    radius_of(terms.tail, index.tail_weights), what + ", tail");
      seen.prefix.take(terms.prefix, index.prefix_weights);
      seen.tail.take(terms.tail, index.tail_weights);
      if (index.has_boxes()) {
        const detail::PrefixStore centres = box_centres(index);
        EXPECT_GE(centres.radius(place / kernels::PrefixBlocks::kRows),
                  radius_of(terms.box, index.box_weights))
            << what << ", box";
        seen.box.take(terms.box, index.box_weights);
      }
      if (options.code_width() == 0) continue;
      expect_radius(index.prefixes.code_radius(place), radius_of(terms.codes, index.code_weights),
                    what + ", codes");
      seen.codes.take(terms.codes, index.code_weights);
    }
  }
  return seen;
}

TEST(RowTerms, RadiiHaveEveryTerm) {
  const Seen seen = expect_terms({.prefix = 8, .width = 40}, 40);
  expect_all_counted(seen.prefix, {detail::kLonger, detail::kOutside, detail::kRounded, detail::kRounding});
  expect_all_counted(seen.tail, {detail::kOutside, detail::kRounded, detail::kRounding});
}

TEST(RowTerms, RadiiOfCodesHaveEveryTerm) {
  const Seen seen = expect_terms({.prefix = 8, .int4_width = 32, .width = 60}, 60);
  expect_all_counted(seen.prefix, {detail::kLonger, detail::kRounding});
  expect_all_counted(seen.tail, {detail::kOfCodes, detail::kOutside, detail::kRounded, detail::kRounding});
  expect_all_counted(seen.codes, {detail::kInt4Rounded, detail::kCodeContext});
}

TEST(RowTerms, RadiiOfDitheredCodesHaveEveryTerm) {
  const Seen seen = expect_terms(
      {.prefix = 8, .int4_width = 32, .int2_width = 32, .width = 90, .failure_probability = 1e-6}, 90);
  // Steps of four bits are so short that it does not pay to cut anything off.
  expect_all_counted(seen.codes,
                     {detail::kInt4Rounded, detail::kInt2Rounded, detail::kCodeContext, detail::kBeyondInt2});
}

TEST(RowTerms, RadiiOfTailsHaveWhatIsBehindThem) {
  const Seen seen =
      expect_terms({.prefix = 8, .int4_width = 32, .width = 60}, static_cast<std::size_t>(kDim));
  expect_all_counted(seen.prefix, {detail::kLonger, detail::kRounding});
  expect_all_counted(seen.tail, {detail::kLonger, detail::kOfCodes, detail::kRounded, detail::kRounding});
}

TEST(RowTerms, RadiiOfBoxesHaveEveryTerm) {
  for (const CertifiedOptions& options :
       {CertifiedOptions{.prefix = 12, .width = 40, .boxes = BoundBoxes::always, .box_width = 8},
        CertifiedOptions{
            .prefix = 12, .int4_width = 32, .width = 60, .boxes = BoundBoxes::always, .box_width = 8}}) {
    const Seen seen = expect_terms(options, options.width);
    expect_all_counted(seen.box, {detail::kLonger, detail::kOutside, detail::kRounded, detail::kRounding});
  }
}

// What float32 makes of rows in a whole transform's coordinates is measured by float32: that is rounded too.
TEST(RowTerms, WhatAWholeTransformLeavesIsNotLessThanItIs) {
  const RowMajorMatrix W = random_matrix(2000, 12, 1);
  const SoftmaxLayer layer = SoftmaxLayer::own(W);
  const ContextTransform transform = some_transform(layer, random_matrix(100, 12, 3), 12);
  ASSERT_TRUE(transform.is_whole());
  const Eigen::MatrixXd basis = detail::basis_of(transform);
  const detail::RowProjector projector(layer, transform);
  std::vector<TokenId> tokens(2000);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i);
  const detail::RowCoordinates rows = projector.at(tokens);
  for (Eigen::Index i = 0; i < W.rows(); ++i) {
    const Eigen::VectorXd left = W.row(i).transpose().cast<double>() - basis * rows.inside.row(i).transpose();
    ASSERT_GE(rows.outside[i], left.norm()) << i;
    ASSERT_LE(rows.outside[i], 1e-4 * rows.norms[i]);
  }
}

TEST(RowTerms, RowsInTheirOwnCoordinatesLeaveNothing) {
  const RowMajorMatrix W = random_matrix(300, 12, 1);
  const SoftmaxLayer layer = SoftmaxLayer::own(W);
  const std::vector<TokenId> tokens = {7, 0, 299};
  const detail::RowCoordinates rows = detail::RowProjector(layer, ContextTransform::identity(12)).at(tokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto at = static_cast<Eigen::Index>(i);
    const Eigen::RowVectorXd w = W.row(tokens[i]).cast<double>();
    EXPECT_EQ(rows.inside.row(at), w);
    EXPECT_EQ(rows.outside[at], 0.0);
    EXPECT_DOUBLE_EQ(rows.norms[at], w.norm());
  }
}

TEST(RowTerms, WhatOverflowsInAWholeTransformIsLeftToItsLength) {
  RowMajorMatrix W = random_matrix(40, 12, 1);
  W.row(7).setConstant(3e38F);
  const SoftmaxLayer layer = SoftmaxLayer::own(W);
  const ContextTransform transform =
      some_transform(SoftmaxLayer::own(random_matrix(40, 12, 1)), random_matrix(100, 12, 3) * 1e-3F, 12);
  const std::vector<TokenId> token = {7};
  const detail::RowCoordinates rows = detail::RowProjector(layer, transform).at(token);
  EXPECT_TRUE(rows.inside.allFinite());
  EXPECT_GE(rows.outside[0], W.row(7).cast<double>().norm());
}

TEST(RowTerms, BoxesHoldTheirRowsFromBothSides) {
  // Lopsided on purpose: a box's middle is rounded, and may lie anywhere between its sides.
  constexpr std::size_t kWidth = 8;
  detail::PrefixWriter writer(64, kWidth);
  std::vector<std::int8_t> q(kWidth);
  const RowMajorMatrix rows = random_matrix(64, kWidth, 5);
  std::vector<float> radii;
  for (std::size_t row = 0; row < 64; ++row) {
    std::vector<double> x(kWidth);
    for (std::size_t j = 0; j < kWidth; ++j) {
      x[j] = std::pow(static_cast<double>(rows(static_cast<Eigen::Index>(row), static_cast<Eigen::Index>(j))),
                      3);
    }
    writer.put(row, rows(static_cast<Eigen::Index>(row), 0), x, q.data());
    radii.push_back(0.5F + static_cast<float>(row % 16));
  }
  const detail::PrefixStore store = std::move(writer).finish();
  constexpr std::size_t kBoxWidth = 4;
  detail::PrefixWriter centres(4, kBoxWidth);
  detail::PrefixWriter spreads(4, kBoxWidth);
  detail::BoxMaker maker(store, radii, centres, spreads);
  for (std::size_t box = 0; box < 4; ++box) maker.make(box);
  const detail::PrefixStore middle = std::move(centres).finish();
  const detail::PrefixStore half = std::move(spreads).finish();
  for (std::size_t row = 0; row < 64; ++row) {
    const std::size_t box = row / 16;
    ASSERT_GE(middle.bias(box), store.bias(row));
    ASSERT_GE(middle.radius(box), static_cast<double>(radii[row]));
    for (std::size_t j = 0; j < kBoxWidth; ++j) {
      const double off =
          store.scale(row) * store.coordinate(row, j) - middle.scale(box) * middle.coordinate(box, j);
      ASSERT_LE(std::abs(off), half.scale(box) * half.coordinate(box, j)) << "row " << row;
    }
  }
}

TEST(RowTerms, WhatOverflowsKeepsItsBoxOpen) {
  detail::PrefixWriter writer(2, 4);
  std::vector<std::int8_t> q(4);
  const std::vector<double> small = {1.0, 2.0, 0.0, 0.0};
  const std::vector<double> huge = {1e45, 2.0, 0.0, 0.0};
  writer.put(0, 0.0F, small, q.data());
  writer.put(1, 0.0F, huge, q.data());
  const std::vector<float> radii = {1.0F, 1.0F};
  const detail::PrefixStore store = std::move(writer).finish();
  detail::PrefixWriter centres(1, 4);
  detail::PrefixWriter spreads(1, 4);
  detail::BoxMaker(store, radii, centres, spreads).make(0);
  EXPECT_EQ(std::move(centres).finish().radius(0), std::numeric_limits<double>::infinity());
}

TEST(RowTerms, SidesThatAreRoundedUpStayWithinTheirByte) {
  // More than 127 steps of 1.
  const double largest = std::nextafter(127.0, 128.0);
  detail::PrefixWriter writer(1, 4);
  writer.put_up(0, std::vector<double>{largest, 0.0, 1.0, 64.5});
  const detail::PrefixStore store = std::move(writer).finish();
  EXPECT_GE(store.scale(0) * store.coordinate(0, 0), largest);
  EXPECT_GE(store.scale(0) * store.coordinate(0, 3), 64.5);
}

}  // namespace
}  // namespace topksoftmax
