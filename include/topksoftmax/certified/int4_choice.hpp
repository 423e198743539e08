// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <Eigen/LU>
#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <vector>

#include "topksoftmax/certified/coordinates.hpp"
#include "topksoftmax/certified/costs.hpp"
#include "topksoftmax/certified/layer_rows.hpp"
#include "topksoftmax/certified/trials.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/kernels/prefix_tails.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A prefix with coordinates in int4 behind it, all others in tails, and the work that this makes.
struct Int4Choice {
  std::size_t prefix = 0;
  std::size_t int4_width = 0;
  double cost = std::numeric_limits<double>::infinity();  ///< as costs.hpp counts it
};

inline constexpr std::array<std::size_t, 5> kInt4Prefixes = {8, 16, 32, 48, 64};
inline constexpr std::array<std::size_t, 14> kInt4Widths = {32,  64,  96,  128, 192,  256,  320,
                                                            384, 512, 768, 992, 1504, 2016, 4032};
/// What rounding normal numbers to int4 and contexts to eight bits, and what rounding to int8, takes of
/// lengths.
inline constexpr double kLostToInt4 = 0.12;
inline constexpr double kLostToInt8 = 0.008;

/// Some rows and contexts in all coordinates, of which more and more are met.
class Int4Trials {
 public:
  Int4Trials(const SoftmaxLayer& layer, const CoordinateBasis& basis, const Trials& trials)
      : thresholds_(trials.thresholds) {
    constexpr std::size_t kSampledRows = 4096;
    const std::vector<TokenId> tokens = evenly_spaced_tokens(layer, kSampledRows);
    const auto sampled = static_cast<Eigen::Index>(tokens.size());
    const Eigen::MatrixXd some = rows_at(layer, tokens).cast<double>();
    estimates_ = biases_at(layer, tokens).replicate(1, trials.contexts.rows());
    const Eigen::PartialPivLU<Eigen::MatrixXd> solver(basis.R.transpose());
    rows_ = solver.solve(basis.Q * some.transpose()).transpose();
    contexts_ = trials.contexts.cast<double>() * basis.Q.transpose() * basis.R.transpose();
    // As LearnedCoordinates::stretched() scales them.
    const Eigen::VectorXd typical =
        (rows_.colwise().squaredNorm().transpose() / static_cast<double>(sampled)).cwiseSqrt();
    steps_ = typical.cwiseMax(kLeastLift).cwiseSqrt();
    row_squares_ = Eigen::VectorXd::Zero(sampled);
    context_squares_ = Eigen::VectorXd::Zero(contexts_.rows());
  }

  std::size_t width() const { return static_cast<std::size_t>(rows_.cols()); }

  /// Lengths of the coordinates met so far.
  struct Lengths {
    Eigen::VectorXd rows;
    Eigen::VectorXd contexts;
  };
  Lengths squares() const { return {row_squares_, context_squares_}; }

  /// Meets more coordinates, up to `end`.
  void meet(std::size_t end) {
    const Eigen::Index count = static_cast<Eigen::Index>(end) - met_;
    const auto rows = rows_.middleCols(met_, count);
    const auto contexts = contexts_.middleCols(met_, count);
    const Eigen::RowVectorXd steps = steps_.segment(met_, count).transpose();
    estimates_ += rows * contexts.transpose();
    row_squares_ += (rows.array().rowwise() / steps.array()).matrix().rowwise().squaredNorm();
    context_squares_ += (contexts.array().rowwise() * steps.array()).matrix().rowwise().squaredNorm();
    met_ += count;
  }

  /// The share of the rows that may reach the thresholds by the coordinates met so far, those up to where
  /// `int8` was measured in int8, those behind by rounding that loses such a share.
  double share_passing(const Lengths& int8, double lost) const {
    const Eigen::Index rest = rows_.cols() - met_;
    const auto root = [](const Eigen::VectorXd& squares) -> Eigen::VectorXd {
      return squares.cwiseMax(0.0).cwiseSqrt();
    };
    Eigen::MatrixXd upper = estimates_;
    upper += rows_.rightCols(rest).rowwise().norm() * contexts_.rightCols(rest).rowwise().norm().transpose();
    upper += kLostToInt8 * root(int8.rows) * root(int8.contexts).transpose();
    upper += lost * root(row_squares_ - int8.rows) * root(context_squares_ - int8.contexts).transpose();
    const auto passing = (upper.rowwise() - thresholds_.transpose()).array() >= 0.0;
    return static_cast<double>(passing.count()) / static_cast<double>(upper.size());
  }

 private:
  const Eigen::VectorXd& thresholds_;
  Eigen::MatrixXd rows_;       ///< [some×d]
  Eigen::MatrixXd contexts_;   ///< [n×d]
  Eigen::MatrixXd estimates_;  ///< [some×n]
  Eigen::VectorXd steps_;      ///< [d]
  Eigen::VectorXd row_squares_;
  Eigen::VectorXd context_squares_;
  Eigen::Index met_ = 0;
};

/// The choice that makes least work for some contexts, given the coordinates of all dimensions. Cost:
/// 4,096·(d² + n·d) for n contexts.
inline Int4Choice choose_int4(const SoftmaxLayer& layer, const CoordinateBasis& basis, const Trials& trials) {
  Int4Trials met(layer, basis, trials);
  std::vector<Int4Choice> choices;
  std::vector<std::size_t> ends;
  for (const std::size_t prefix : kInt4Prefixes) {
    for (const std::size_t int4_width : kInt4Widths) {
      const std::size_t end = prefix + int4_width;
      if (end > met.width()) break;
      choices.push_back({prefix, int4_width, 0.0});
      ends.push_back(end);
    }
    ends.push_back(std::min(prefix, met.width()));
  }
  ends.push_back(met.width());
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  const auto vocab = static_cast<double>(layer.vocab());
  std::vector<Int4Trials::Lengths> of_prefixes(kInt4Prefixes.size());
  for (const std::size_t end : ends) {
    met.meet(end);
    for (std::size_t i = 0; i < kInt4Prefixes.size(); ++i) {
      if (kInt4Prefixes[i] == end) of_prefixes[i] = met.squares();
    }
    for (Int4Choice& choice : choices) {
      if (choice.prefix + choice.int4_width != end) continue;
      const auto at = std::find(kInt4Prefixes.begin(), kInt4Prefixes.end(), choice.prefix);
      const auto& int8 = of_prefixes[static_cast<std::size_t>(at - kInt4Prefixes.begin())];
      const kernels::PrefixTails tails = {.width = met.width() - choice.prefix};
      const double passing = vocab * met.share_passing(int8, kLostToInt4);
      choice.cost = vocab * (kRowCost + kInt4RowCost + static_cast<double>(choice.prefix) +
                             kInt4Cost * static_cast<double>(choice.int4_width)) +
                    passing * (kTailCost + kTailLineCost * static_cast<double>(tails.lines() - 1));
    }
  }
  const auto best = std::min_element(choices.begin(), choices.end(),
                                     [](const auto& a, const auto& b) { return a.cost < b.cost; });
  if (best == choices.end()) return {};
  const double left = vocab * met.share_passing(met.squares(), 0.0);
  const auto dim = static_cast<double>(layer.dim());
  best->cost += left * kScoredByteCost * static_cast<double>(layer.rows().bytes(1)) + 2.0 * dim * dim;
  return *best;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
