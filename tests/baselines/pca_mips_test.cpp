// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/baselines/pca_mips.hpp"

#include <gtest/gtest.h>

#include <Eigen/SVD>
#include <algorithm>
#include <cstddef>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "support/layers.hpp"
#include "support/screened.hpp"
#include "topksoftmax/baselines/build_pca_mips.hpp"
#include "topksoftmax/error.hpp"

namespace topksoftmax {
namespace {

using testing::random_layer;
using testing::random_matrix;
using testing::random_vector;
using testing::screened;

constexpr Eigen::Index kVocab = 320;
constexpr Eigen::Index kDim = 12;

std::set<TokenId> screen(const PcaMips& head, const Eigen::VectorXf& h, std::size_t leaves) {
  const std::vector<TokenId> ids = screened(head, h, {.effort = leaves});
  return {ids.begin(), ids.end()};
}

/// The tree in float64, with components by an SVD: the tokens of each leaf, and what a context pays for it.
/// Which of the two middle rows a median is depends on a component's sign: they are those of `tree`.
class ReferenceTree {
 public:
  ReferenceTree(const SoftmaxLayer& layer, const detail::PcaTree& tree) {
    Eigen::MatrixXd lifted(kVocab, kDim + 2);
    lifted.leftCols(kDim) = layer.weights().cast<double>();
    lifted.col(kDim) = layer.biases().cast<double>();
    const Eigen::VectorXd norms = lifted.leftCols(kDim + 1).rowwise().squaredNorm();
    lifted.col(kDim + 1) = (norms.maxCoeff() - norms.array()).max(0.0).sqrt();
    const Eigen::MatrixXd centred = lifted.rowwise() - lifted.colwise().mean();
    const Eigen::BDCSVD<Eigen::MatrixXd> svd(centred, Eigen::ComputeThinV);
    const auto depth = static_cast<Eigen::Index>(tree.depth());
    components_ = svd.matrixV().leftCols(depth);
    const Eigen::Map<const RowMajorMatrix> alike(static_cast<const float*>(tree.components().data), depth,
                                                 kDim);
    for (Eigen::Index i = 0; i < depth; ++i) {
      if (components_.col(i).head(kDim).dot(alike.row(i).cast<double>()) < 0.0) components_.col(i) *= -1.0;
    }
    projections_ = lifted * components_;
    std::vector<TokenId> all(kVocab);
    std::iota(all.begin(), all.end(), 0);
    grow(std::move(all), {});
  }

  /// What a leaf costs: the squared distances to the splits that lie between it and the context.
  struct Cost {
    double cost;
    std::size_t leaf;
  };

  /// All leaves, the cheapest first.
  std::vector<Cost> costs(const Eigen::VectorXf& h) const {
    Eigen::VectorXd context(kDim + 2);
    context << h.cast<double>(), 1.0, 0.0;
    const Eigen::VectorXd at = components_.transpose() * context;
    std::vector<Cost> costs;
    for (std::size_t leaf = 0; leaf < leaves_.size(); ++leaf) {
      double cost = 0.0;
      for (std::size_t level = 0; level < leaves_[leaf].path.size(); ++level) {
        const auto [median, above] = leaves_[leaf].path[level];
        const double side = at[static_cast<Eigen::Index>(level)] - median;
        if ((side >= 0.0) != above) cost += side * side;
      }
      costs.push_back({cost, leaf});
    }
    std::sort(costs.begin(), costs.end(), [](const Cost& a, const Cost& b) { return a.cost < b.cost; });
    return costs;
  }

  const std::vector<TokenId>& tokens(std::size_t leaf) const { return leaves_[leaf].ids; }

 private:
  struct Split {
    double median;
    bool above;  ///< whether the leaf is beyond it
  };
  struct Leaf {
    std::vector<TokenId> ids;
    std::vector<Split> path;
  };

  void grow(std::vector<TokenId> ids, const std::vector<Split>& path) {
    const auto level = static_cast<Eigen::Index>(path.size());
    if (level == components_.cols()) {
      leaves_.push_back({std::move(ids), path});
      return;
    }
    std::sort(ids.begin(), ids.end(),
              [&](TokenId a, TokenId b) { return projections_(a, level) < projections_(b, level); });
    const auto middle = ids.begin() + static_cast<std::ptrdiff_t>(ids.size() / 2);
    for (const bool above : {false, true}) {
      std::vector<Split> further = path;
      further.push_back({projections_(*middle, level), above});
      grow(above ? std::vector<TokenId>(middle, ids.end()) : std::vector<TokenId>(ids.begin(), middle),
           further);
    }
  }

  Eigen::MatrixXd components_;   ///< [(d + 2)×depth]
  Eigen::MatrixXd projections_;  ///< [V×depth]
  std::vector<Leaf> leaves_;
};

TEST(PcaMips, VisitsTheLeavesBehindTheNearestSplits) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 1);
  for (const std::size_t depth : {1U, 3U}) {
    const auto head = PcaMips::build(layer, {.depth = depth});
    const ReferenceTree reference(layer, detail::PcaTree(layer, depth, SerialExecutor()));
    std::size_t told = 0;
    for (unsigned i = 0; i < 20; ++i) {
      const Eigen::VectorXf h = random_vector(kDim, 30 + i);
      const auto costs = reference.costs(h);
      std::set<TokenId> expected;
      for (std::size_t leaves = 1; leaves < costs.size(); ++leaves) {
        const std::vector<TokenId>& ids = reference.tokens(costs[leaves - 1].leaf);
        expected.insert(ids.begin(), ids.end());
        // Floats may see the next leaf first where it costs nearly the same.
        if (costs[leaves].cost < 1.001 * costs[leaves - 1].cost + 1e-6) continue;
        EXPECT_EQ(screen(*head, h, leaves), expected) << depth << ' ' << leaves;
        ++told;
      }
    }
    EXPECT_GE(told, depth == 1 ? 18U : 126U);
  }
}

TEST(PcaMips, TheSizeOfTheRowsMakesNoDifferenceToTheTree) {
  const RowMajorMatrix W = random_matrix(kVocab, kDim, 1);
  const auto plain = PcaMips::build(SoftmaxLayer::own(W), {.depth = 4});
  for (const float size : {0x1p83F, 0x1p-83F}) {  // about 1e25 and 1e-25
    const auto scaled = PcaMips::build(SoftmaxLayer::own(RowMajorMatrix(size * W)), {.depth = 4});
    for (unsigned i = 0; i < 10; ++i) {
      const Eigen::VectorXf h = random_vector(kDim, 30 + i);
      const Eigen::VectorXf alike = size * h;
      for (std::size_t leaves = 1; leaves < 16; ++leaves)
        EXPECT_EQ(screen(*scaled, alike, leaves), screen(*plain, h, leaves)) << size << ' ' << leaves;
    }
  }
  // Next to rows so long a context of such a length is next to nothing.
  const auto scaled = PcaMips::build(SoftmaxLayer::own(RowMajorMatrix(0x1p83F * W)), {.depth = 4});
  EXPECT_EQ(screen(*scaled, random_vector(kDim, 30, 1e-25F), 3),
            screen(*plain, Eigen::VectorXf::Zero(kDim), 3));
}

TEST(PcaMips, MoreLeavesAddTokens) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 1);
  const auto head = PcaMips::build(layer, {.depth = 5});
  for (unsigned i = 0; i < 10; ++i) {
    const Eigen::VectorXf h = random_vector(kDim, 60 + i);
    std::set<TokenId> before;
    for (std::size_t leaves = 1; leaves < 32; ++leaves) {
      const std::set<TokenId> found = screen(*head, h, leaves);
      EXPECT_EQ(found.size(), leaves * kVocab / 32);
      EXPECT_TRUE(std::includes(found.begin(), found.end(), before.begin(), before.end()));
      before = found;
    }
  }
}

TEST(PcaMips, VisitsTheLeavesOfOneWrongTurnUnlessTold) {
  const SoftmaxLayer layer = random_layer(kVocab, kDim, 1);
  const TopK answer = PcaMips::build(layer, {.depth = 5})->query(random_vector(kDim, 3));
  EXPECT_EQ(answer.work.candidates, 6U * kVocab / 32);
}

TEST(PcaMips, HasNoLevelsThatLeaveLeavesEmpty) {
  const SoftmaxLayer layer = random_layer(5, kDim, 1);
  const auto head = PcaMips::build(layer, {.depth = 10, .leaves = 1});
  const TopK answer = head->query(random_vector(kDim, 3));
  EXPECT_GE(answer.work.candidates, 1U);
  EXPECT_LE(answer.work.candidates, 2U);
}

TEST(PcaMips, RefusesATreeTooDeepAndOtherContexts) {
  EXPECT_THROW(PcaMips::build(random_layer(10, 3, 1), {.depth = 25}), Error);
  EXPECT_THROW(PcaMips::build(random_layer(10, 3, 1), random_matrix(5, 4, 1)), Error);
}

}  // namespace
}  // namespace topksoftmax
