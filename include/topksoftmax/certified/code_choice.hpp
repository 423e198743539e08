// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <Eigen/LU>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "topksoftmax/certified/coordinates.hpp"
#include "topksoftmax/certified/costs.hpp"
#include "topksoftmax/certified/dither.hpp"
#include "topksoftmax/certified/layer_rows.hpp"
#include "topksoftmax/certified/trials.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/kernels/prefix_tails.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Coordinates in int8, and behind them in codes of four and two bits; all others are in tails.
struct CodeWidths {
  std::size_t prefix = 0;
  std::size_t int4 = 0;
  std::size_t int2 = 0;

  std::size_t end() const { return prefix + int4 + int2; }
};

/// Such widths, and the work that they make.
struct CodeChoice {
  CodeWidths widths;
  double cost = std::numeric_limits<double>::infinity();  ///< as costs.hpp counts it
};

inline constexpr std::array<std::size_t, 5> kCodePrefixes = {8, 16, 32, 48, 64};
inline constexpr std::array<std::size_t, 14> kInt4Widths = {32,  64,  96,  128, 192,  256,  320,
                                                            384, 512, 768, 992, 1504, 2016, 4032};
/// What rounding normal numbers to int4 and contexts to eight bits, and what rounding to int8, takes of
/// lengths.
inline constexpr double kLostToInt4 = 0.12;
inline constexpr double kLostToInt8 = 0.008;

/// The same for dithered codes of `width` normal numbers, whose largest is about 0.9·√(2·ln(2·width))
/// standard deviations. `reach`: Dither::reach().
inline double lost_to_dithered(std::size_t bits, std::size_t width, double reach) {
  if (width == 0) return 0.0;
  const auto n = static_cast<double>(width);
  const double peak = 0.9 * std::sqrt(2.0 * std::log(2.0 * n));
  return 2.0 * reach * peak / (std::exp2(static_cast<double>(bits)) - 1.0) / std::sqrt(n);
}

/// Some rows and contexts in all coordinates, of which more and more are met.
class CodeTrials {
 public:
  CodeTrials(const SoftmaxLayer& layer, const CoordinateBasis& basis, const Trials& trials)
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

  /// What rounding takes of the coordinates between two lengths, as a share of both.
  struct Rounded {
    Lengths from;
    Lengths to;
    double lost;
  };

  /// The share of the rows that may reach the thresholds by the coordinates met so far, rounded like this.
  double share_passing(std::span<const Rounded> parts) const {
    const Eigen::Index rest = rows_.cols() - met_;
    const auto root = [](const Eigen::VectorXd& squares) -> Eigen::VectorXd {
      return squares.cwiseMax(0.0).cwiseSqrt();
    };
    Eigen::MatrixXd upper = estimates_;
    upper += rows_.rightCols(rest).rowwise().norm() * contexts_.rightCols(rest).rowwise().norm().transpose();
    for (const Rounded& part : parts) {
      upper += part.lost * root(part.to.rows - part.from.rows) *
               root(part.to.contexts - part.from.contexts).transpose();
    }
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

/// Widths to choose among for contexts of so many coordinates: those in int2 only where codes are dithered,
/// then all behind the others.
inline std::vector<CodeWidths> code_widths(std::size_t width, bool dithered) {
  constexpr std::size_t kSegment = kernels::CodeContext::kSegment;
  std::vector<CodeWidths> all;
  for (const std::size_t prefix : kCodePrefixes) {
    if (prefix > width) break;
    const std::size_t room = (width - prefix) / kSegment * kSegment;
    if (dithered && room > 0) all.push_back({prefix, 0, room});
    for (const std::size_t int4 : kInt4Widths) {
      if (int4 > room) break;
      all.push_back({prefix, int4, 0});
      if (dithered && int4 < room) all.push_back({prefix, int4, room - int4});
    }
  }
  return all;
}

/// The choice that makes least work for some contexts, given the coordinates of all dimensions, where an
/// answer may be wrong with a probability. Cost: 4,096·(d² + n·d) for n contexts.
inline CodeChoice choose_codes(const SoftmaxLayer& layer, const CoordinateBasis& basis, const Trials& trials,
                               double failure_probability) {
  CodeTrials met(layer, basis, trials);
  const bool dithered = failure_probability > 0.0;
  const double reach = dithered ? Dither::reach_of(layer.vocab(), failure_probability) : 0.0;
  std::vector<CodeWidths> choices = code_widths(met.width(), dithered);
  std::map<std::size_t, CodeTrials::Lengths> squares = {{met.width(), {}}};
  for (const CodeWidths& widths : choices) {
    for (const std::size_t end : {widths.prefix, widths.prefix + widths.int4, widths.end()})
      squares[end] = {};
  }
  const CodeTrials::Lengths none = met.squares();
  const auto vocab = static_cast<double>(layer.vocab());
  CodeChoice best;
  for (auto& [end, at_end] : squares) {
    met.meet(end);
    at_end = met.squares();
    for (const CodeWidths& widths : choices) {
      if (widths.end() != end) continue;
      const CodeTrials::Lengths& int8 = squares[widths.prefix];
      const CodeTrials::Lengths& int4 = squares[widths.prefix + widths.int4];
      const double to_int4 = dithered ? lost_to_dithered(4, widths.int4, reach) : kLostToInt4;
      const CodeTrials::Rounded rounded[] = {{none, int8, kLostToInt8},
                                             {int8, int4, to_int4},
                                             {int4, at_end, lost_to_dithered(2, widths.int2, reach)}};
      const double passing = vocab * met.share_passing(rounded);
      const kernels::PrefixTails tails = {.width = met.width() - widths.prefix};
      const double row = kRowCost + kCodeRowCost + static_cast<double>(widths.prefix) +
                         kInt4Cost * static_cast<double>(widths.int4) +
                         kInt2Cost * static_cast<double>(widths.int2);
      const double cost =
          vocab * row + passing * (kTailCost + kTailLineCost * static_cast<double>(tails.lines() - 1));
      if (cost < best.cost) best = {widths, cost};
    }
  }
  if (choices.empty()) return best;
  const CodeTrials::Rounded all[] = {{none, met.squares(), kLostToInt8}};
  const double left = vocab * met.share_passing(all);
  const auto dim = static_cast<double>(layer.dim());
  best.cost += left * kScoredByteCost * static_cast<double>(layer.rows().bytes(1)) + 2.0 * dim * dim;
  return best;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
