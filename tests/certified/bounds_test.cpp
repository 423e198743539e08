// SPDX-License-Identifier: Apache-2.0
//
// Bounds against exact arithmetic. A case is a row and a context: the logit in whole numbers, without any
// rounding, and the float32 logit that scoring computes must both lie in estimate ± radius, of the prefix, of
// prefix and tail, and under the bound of the box. TOPKSOFTMAX_BOUND_CASES says how many cases to try
// (100,000 unless it is set).
#include "topksoftmax/certified/bounds.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "support/exact_arithmetic.hpp"
#include "support/layers.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/certified/certified.hpp"
#include "topksoftmax/shared_scan.hpp"

namespace topksoftmax {
namespace {

using testing::exact;
using testing::exact_logit;
using testing::ExactNumber;
using testing::random_matrix;

constexpr Eigen::Index kVocab = 80;

struct Rows {
  const char* name;
  std::function<RowMajorMatrix(Eigen::Index dim, std::mt19937& engine)> make;
};

RowMajorMatrix some_rows(Eigen::Index dim, std::mt19937& engine, float scale = 1.0F) {
  return random_matrix(kVocab, dim, static_cast<unsigned>(engine()), scale);
}

/// Rows that are hard to bound, each kind for a reason of its own.
const std::array kRows = {
    Rows{"random", [](Eigen::Index dim, std::mt19937& engine) { return some_rows(dim, engine); }},
    Rows{"an ulp apart",
         [](Eigen::Index dim, std::mt19937& engine) {
           RowMajorMatrix W = random_matrix(1, dim, static_cast<unsigned>(engine())).replicate(kVocab, 1);
           for (Eigen::Index v = 0; v < kVocab; ++v) {
             float& x = W(v, v % dim);
             x = std::nextafter(x, v % 2 == 0 ? 100.0F : -100.0F);
           }
           return W;
         }},
    Rows{"equal but for their tails",
         [](Eigen::Index dim, std::mt19937& engine) {
           RowMajorMatrix W =
               random_matrix(1, dim, static_cast<unsigned>(engine()), 8.0F).replicate(kVocab, 1);
           W.rightCols(dim - dim / 3) += some_rows(dim - dim / 3, engine, 0.1F);
           return W;
         }},
    Rows{"denormal", [](Eigen::Index dim,
                        std::mt19937& engine) { return RowMajorMatrix(some_rows(dim, engine) * 1e-41F); }},
    Rows{"of scales from 1e-15 to 1e15",
         [](Eigen::Index dim, std::mt19937& engine) {
           RowMajorMatrix W = some_rows(dim, engine);
           for (Eigen::Index v = 0; v < kVocab; ++v)
             W.row(v) *= std::pow(10.0F, static_cast<float>(v % 31) - 15.0F);
           return W;
         }},
    Rows{"with a huge coordinate",
         [](Eigen::Index dim, std::mt19937& engine) {
           RowMajorMatrix W = some_rows(dim, engine);
           W.col(static_cast<Eigen::Index>(engine() % static_cast<unsigned>(dim))) *= 1e7F;
           W(3, 0) = 1e12F;
           return W;
         }},
    Rows{"at the float's end",
         [](Eigen::Index dim, std::mt19937& engine) {
           RowMajorMatrix W = some_rows(dim, engine);
           W.row(5) *= 1e37F;
           W(11, 0) = std::numeric_limits<float>::max();
           return W;
         }},
    Rows{"of small whole numbers",
         [](Eigen::Index dim, std::mt19937& engine) {
           return RowMajorMatrix(some_rows(dim, engine, 3.0F).array().round());
         }},
    Rows{"of low rank",
         [](Eigen::Index dim, std::mt19937& engine) {
           return RowMajorMatrix(some_rows(2, engine) *
                                 random_matrix(2, dim, static_cast<unsigned>(engine())));
         }},
    Rows{"of one direction each",
         [](Eigen::Index dim, std::mt19937& engine) {
           RowMajorMatrix W = RowMajorMatrix::Zero(kVocab, dim);
           for (Eigen::Index v = 0; v < kVocab; ++v)
             W(v, v % dim) = 1.0F + static_cast<float>(engine() % 1000) / 999.0F;
           return W;
         }},
};

/// What a run has seen.
struct Tally {
  std::size_t cases = 0;
  std::size_t bounded = 0;  ///< where a bound of finite size was checked
  std::size_t close = 0;    ///< where a logit took at least half of the radius
};

/// A layer with its index, asked for bounds.
class World {
 public:
  World(unsigned seed, Tally& tally) : engine_(seed), tally_(tally) {
    const auto pick = [this](std::size_t least, std::size_t most) {
      return least + engine_() % (most - least + 1);
    };
    const auto dim = static_cast<Eigen::Index>(seed % 11 == 0 ? pick(40, 140) : pick(2, 26));
    const Rows& rows = kRows[seed % kRows.size()];
    W_ = rows.make(dim, engine_);
    b_ = Eigen::VectorXf::Zero(kVocab);
    if (pick(0, 2) > 0) {
      b_ = testing::random_vector(kVocab, static_cast<unsigned>(engine_()), pick(0, 3) == 0 ? 1e6F : 1.0F);
    }
    const SoftmaxLayer layer = SoftmaxLayer::own(W_, b_);
    // Contexts of fewer directions than there are, and as long in one of them as in all others.
    learned_ = random_matrix(60, std::max<Eigen::Index>(dim / 2, 1), static_cast<unsigned>(engine_())) *
               random_matrix(std::max<Eigen::Index>(dim / 2, 1), dim, static_cast<unsigned>(engine_()));
    CertifiedOptions options{.prefix = 4 * pick(1, 2), .context_sample = 60};
    options.width = pick(0, 2) == 0 ? 0 : pick(std::max<std::size_t>(options.prefix, 8), 40);
    options.boxes = pick(0, 1) == 0 ? BoundBoxes::never : BoundBoxes::always;
    if (dim > 40 && pick(0, 3) > 0) {
      options = {.prefix = 4 * pick(1, 3), .int4_width = 32, .context_sample = 60, .boxes = options.boxes};
      if (pick(0, 1) == 0) options.width = options.prefix + options.int4_width + pick(0, 40);
    }
    options.box_width = 4 * pick(0, options.prefix / 4);
    options.coordinates = std::array{BoundCoordinates::balanced, BoundCoordinates::contexts,
                                     BoundCoordinates::rows}[pick(0, 2)];
    head_ = Certified::build(layer, learned_, options);
    what_ = "world " + std::to_string(seed) + ", rows " + rows.name;
    find_residuals();
  }

  /// Bounds all rows for a context.
  void ask(unsigned number) {
    const Eigen::VectorXf h = context(number);
    if (!h.allFinite()) return;
    check(h);
  }

 private:
  /// What the estimates of some rows leave out, as a vector: the context along it makes most of that.
  void find_residuals() {
    const Eigen::Index dim = W_.cols();
    residuals_ = RowMajorMatrix::Zero(8, dim);
    for (Eigen::Index j = 0; j < dim; ++j) {
      const Eigen::VectorXf unit = Eigen::VectorXf::Unit(dim, j);
      const std::vector<Bound> bounds = tail_bounds(unit);
      for (const Bound& bound : bounds) {
        const auto v = static_cast<Eigen::Index>(bound.token);
        if (v % 10 == 0) residuals_(v / 10, j) = W_(v, j) - (bound.estimate - b_[v]);
      }
    }
  }

  Eigen::VectorXf context(unsigned number) {
    const Eigen::Index dim = W_.cols();
    const auto seed = static_cast<unsigned>(engine_());
    const Eigen::VectorXf random = testing::random_vector(dim, seed);
    const Eigen::VectorXf seen = learned_.row(static_cast<Eigen::Index>(seed % 60));
    const Eigen::VectorXf residual = residuals_.row(static_cast<Eigen::Index>(seed % 8));
    const Eigen::VectorXf row = W_.row(static_cast<Eigen::Index>(seed % kVocab));
    Eigen::VectorXf h = random;
    switch (number % 7) {
      case 0:
        h = seen;
        break;
      case 1:
        h = random - random.dot(seen) / seen.squaredNorm() * seen;
        break;
      case 2:
        h = row.normalized();
        break;
      case 3:
        h = residual;
        break;
      case 4:
        h = -residual + 1e-3F * residual.norm() * random.normalized();
        break;
      case 5:
        h = Eigen::VectorXf::Unit(dim, static_cast<Eigen::Index>(seed % static_cast<unsigned>(dim)));
        break;
      default:
        break;
    }
    const float length = h.norm();
    if (!(length > 1e-30F) || !std::isfinite(length)) h = random;
    constexpr std::array kLengths = {1.0F, 1.0F, 1.0F, 1e-12F, 1e3F, 1e15F, 1e-16F, 1e17F, 1e19F};
    return h.normalized() * kLengths[number / 7 % kLengths.size()];
  }

  struct Bound {
    TokenId token;
    float estimate;
    float radius;
  };

  detail::BoundedQuery bounded(const Eigen::VectorXf& h) {
    query_ = Query{};
    query_.h = h.data();
    return detail::bounded(head_->layer(), head_->screener().index(), query_, workspace_);
  }

  std::vector<Bound> prefix_bounds(const detail::BoundedQuery& asked) const {
    const detail::BoundedRows rows = detail::every_row(asked);
    std::vector<Bound> bounds(rows.count);
    for (std::size_t i = 0; i < rows.count; ++i) {
      bounds[i] = {asked.index.token(rows.place(i)), rows.estimates[i], rows.radii[i]};
    }
    return bounds;
  }

  /// By prefixes and tails, or by prefixes where these are all there is.
  std::vector<Bound> tail_bounds(const Eigen::VectorXf& h) {
    const detail::BoundedQuery asked = bounded(h);
    std::vector<Bound> bounds = prefix_bounds(asked);
    const detail::CertifiedIndex& index = asked.index;
    if (index.tails.empty()) return bounds;
    std::vector<TokenId> places(index.rows());
    std::iota(places.begin(), places.end(), 0);
    std::vector<float> estimates(places.size()), radii(places.size());
    for (std::size_t i = 0; i < places.size(); ++i) estimates[i] = bounds[i].estimate;
    topksoftmax::tail_bounds(workspace_, index.tails.tails(), asked.bounds.tail, places.data(), places.size(),
                             estimates.data(), radii.data());
    for (std::size_t i = 0; i < places.size(); ++i) bounds[i] = {index.token(i), estimates[i], radii[i]};
    return bounds;
  }

  /// A row's logits: the real one, and the one that scoring computes.
  struct Logits {
    ExactNumber real;
    float scored;
  };

  void check(const Eigen::VectorXf& h) {
    const detail::BoundedQuery asked = bounded(h);
    tally_.cases += static_cast<std::size_t>(kVocab);
    if (!asked.bounds.usable) return;
    const auto dim = static_cast<std::size_t>(W_.cols());
    std::vector<float> scored(static_cast<std::size_t>(kVocab));
    kernels::scan(asked.layer.rows(), 0, scored.size(), h.data(), scored.data());
    std::vector<Logits> logits(scored.size());
    for (std::size_t v = 0; v < logits.size(); ++v) {
      const auto row = static_cast<Eigen::Index>(v);
      logits[v] = {exact_logit(W_.row(row).data(), h.data(), dim, b_[row]), scored[v]};
    }
    if (asked.index.has_boxes()) {
      for (std::size_t place = 0; place < asked.index.rows(); ++place) {
        const std::size_t box = place / kernels::PrefixBlocks::kRows;
        const float high = asked.bounds.estimates[box] + asked.bounds.radii[box];
        expect_above(high, logits[static_cast<std::size_t>(asked.index.token(place))], "box", place);
      }
    }
    for (const Bound& bound : prefix_bounds(asked)) check(bound, logits, "prefix");
    if (asked.index.tails.empty()) return;
    for (const Bound& bound : tail_bounds(h)) check(bound, logits, "tail");
  }

  void expect_above(float high, const Logits& logits, const char* kind, std::size_t row) const {
    if (std::isnan(high) || high == std::numeric_limits<float>::infinity()) return;  // such rows are kept
    ASSERT_TRUE(std::isfinite(high)) << what_ << ", " << kind << " " << row;
    ASSERT_GE(high, logits.scored) << what_ << ", " << kind << " " << row;
    ASSERT_TRUE(exact(high) >= logits.real) << what_ << ", " << kind << " " << row << ": " << high;
  }

  void check(const Bound& bound, const std::vector<Logits>& all, const char* kind) {
    const auto row = static_cast<std::size_t>(bound.token);
    const Logits& logits = all[row];
    expect_above(bound.estimate + bound.radius, logits, kind, row);
    if (!std::isfinite(bound.estimate) || !std::isfinite(bound.radius)) return;
    ++tally_.bounded;
    const ExactNumber estimate = exact(bound.estimate);
    const ExactNumber radius = exact(bound.radius);
    const ExactNumber off = abs(ExactNumber(logits.real - estimate));
    ASSERT_TRUE(off <= radius) << what_ << ", " << kind << " " << row;
    ASSERT_TRUE(abs(ExactNumber(exact(logits.scored) - estimate)) <= radius)
        << what_ << ", " << kind << " " << row;
    if (radius > 0 && 2 * off >= radius) ++tally_.close;
  }

  std::mt19937 engine_;
  Tally& tally_;
  RowMajorMatrix W_;
  Eigen::VectorXf b_;
  RowMajorMatrix learned_;
  RowMajorMatrix residuals_;  ///< of rows 0, 10, 20, …
  std::unique_ptr<Certified> head_;
  Workspace workspace_;
  Query query_;
  std::string what_;
};

std::size_t wanted_cases() {
  const char* const set = std::getenv("TOPKSOFTMAX_BOUND_CASES");
  return set == nullptr ? 100'000 : static_cast<std::size_t>(std::strtoull(set, nullptr, 10));
}

TEST(Bounds, HoldInExactArithmetic) {
  const std::size_t wanted = wanted_cases();
  // Many contexts are cheaper than as many indexes.
  const auto contexts = static_cast<unsigned>(std::clamp<std::size_t>(wanted / 100'000, 20, 2000));
  Tally tally;
  for (unsigned seed = 1; tally.cases < wanted && !HasFatalFailure(); ++seed) {
    World world(seed, tally);
    for (unsigned i = 0; i < contexts && !HasFatalFailure(); ++i) world.ask(i + seed);
  }
  if (HasFatalFailure()) return;
  EXPECT_GT(tally.bounded, tally.cases / 2);
  EXPECT_GT(tally.close, tally.cases / 20);
  RecordProperty("cases", std::to_string(tally.cases));
  std::cout << tally.cases << " cases, " << tally.bounded << " bounds checked, " << tally.close
            << " of them beyond half of their radius\n";
}

}  // namespace
}  // namespace topksoftmax
