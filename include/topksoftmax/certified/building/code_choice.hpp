// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "topksoftmax/certified/building/coordinates.hpp"
#include "topksoftmax/certified/building/costs.hpp"
#include "topksoftmax/certified/building/found_thresholds.hpp"
#include "topksoftmax/certified/building/trials.hpp"
#include "topksoftmax/certified/dither.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/kernels/prefix_tails.hpp"
#include "topksoftmax/rows/layer_rows.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Coordinates in int8, and behind them in codes of four and two bits, if any; tails end at `width`.
struct CodeWidths {
  std::size_t prefix = 0;
  std::size_t int4 = 0;
  std::size_t int2 = 0;
  std::size_t width = 0;

  std::size_t end() const { return prefix + int4 + int2; }
  kernels::PrefixTails tails() const { return {.width = width - std::min(prefix, width)}; }
};

/// What the first scan reads: the prefixes of so many rows, of all or of those of the boxes that are opened.
struct FirstScan {
  std::size_t box_width = 0;  ///< 0: no boxes
  double rows = 0.0;          ///< as costly as so many that are read in their order
  double boxes = 0.0;         ///< the cost of the boxes
};

/// Such widths and such a scan, where contexts have so many coordinates, and the work that they make.
struct CodeChoice {
  CodeWidths widths{};
  FirstScan scan{};
  std::size_t coordinates = 0;
  bool own = false;                                       ///< coordinates are the layer's
  double cost = std::numeric_limits<double>::infinity();  ///< as costs.hpp counts it
};

inline bool costs_less(const CodeChoice& a, const CodeChoice& b) {
  return a.cost < b.cost;
}

inline constexpr std::array<std::size_t, 5> kCodePrefixes = {8, 16, 32, 48, 64};
/// Fewer than all that are behind a prefix; those are tried as well.
inline constexpr std::array<std::size_t, 15> kInt4Widths = {32,  64,  96,  128, 160,  192,  224, 256,
                                                            320, 384, 512, 768, 1024, 1536, 2048};
/// What rounding normal numbers to int4 and contexts to eight bits, and what rounding either to eight bits,
/// takes of lengths.
inline constexpr double kLostToInt4 = 0.12;
inline constexpr double kLostToInt8 = 0.008;

/// The same for dithered codes of `width` normal numbers, of which the largest, or a lower one with what lies
/// beyond it, counts as √(2·ln(2·width)) standard deviations. `reach`: Dither::reach_of().
inline double lost_to_dithered(std::size_t bits, std::size_t width, double reach) {
  if (width == 0) return 0.0;
  const auto n = static_cast<double>(width);
  const double peak = std::sqrt(2.0 * std::log(2.0 * n));
  return 2.0 * reach * peak / (std::exp2(static_cast<double>(bits)) - 1.0) / std::sqrt(n);
}

/// Some rows and contexts in coordinates of which more and more are met.
class CodeTrials {
 public:
  CodeTrials(const SoftmaxLayer& layer, const CoordinateBasis& basis, const Trials& trials) {
    constexpr std::size_t kSampledRows = 4096;
    const std::vector<TokenId> tokens = evenly_spaced_tokens(layer, kSampledRows);
    const auto sampled = static_cast<Eigen::Index>(tokens.size());
    const Eigen::MatrixXd some = rows_at(layer, tokens).cast<double>();
    estimates_ = biases_at(layer, tokens).replicate(1, trials.contexts.rows());
    const Eigen::MatrixXd contexts = trials.contexts.cast<double>();
    rows_ = basis.of_rows(some);
    contexts_ = basis.of_contexts(contexts);
    outside_rows_ = length_outside(basis.Q, some);
    outside_contexts_ = length_outside(basis.Q, contexts);
    if (basis.is_identity()) {  // coordinates are not scaled
      steps_ = Eigen::VectorXd::Ones(rows_.cols());
      lost_to_bytes_ = typically_lost_to_bytes(rows_);
    } else {  // as LearnedCoordinates::stretched() scales them
      const Eigen::VectorXd typical =
          (rows_.colwise().squaredNorm().transpose() / static_cast<double>(sampled)).cwiseSqrt();
      steps_ = typical.cwiseMax(kLeastLift).cwiseSqrt();
    }
    row_squares_ = Eigen::VectorXd::Zero(sampled);
    context_squares_ = Eigen::VectorXd::Zero(contexts_.rows());
  }

  std::size_t width() const { return static_cast<std::size_t>(rows_.cols()); }
  /// The share of lengths that rounding rows to bytes takes.
  double lost_to_bytes() const { return lost_to_bytes_; }

  /// Lengths of the coordinates met so far.
  struct Lengths {
    Eigen::VectorXd rows;
    Eigen::VectorXd contexts;
  };
  Lengths squares() const { return {row_squares_, context_squares_}; }

  /// Meets more coordinates, up to `end` or the last.
  void meet(std::size_t end) {
    const Eigen::Index count = static_cast<Eigen::Index>(std::min(end, width())) - met_;
    const auto rows = rows_.middleCols(met_, count);
    const auto contexts = contexts_.middleCols(met_, count);
    const Eigen::RowVectorXd steps = steps_.segment(met_, count).transpose();
    estimates_ += times_transposed(rows, contexts);
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

  /// The share of the rows that may reach thresholds [n] by the coordinates met so far, rounded like this: to
  /// bytes, and to codes, whose errors add up as their squares do.
  double share_passing(const Eigen::VectorXd& thresholds, const Rounded& to_bytes,
                       std::span<const Rounded> codes = {}) const {
    const Eigen::Index rest = rows_.cols() - met_;
    Eigen::MatrixXd upper = estimates_;
    upper +=
        times_transposed(rows_.rightCols(rest).rowwise().norm(), contexts_.rightCols(rest).rowwise().norm());
    upper += times_transposed(outside_rows_, outside_contexts_);
    upper += squares_of(to_bytes).cwiseSqrt();
    if (!codes.empty()) {
      Eigen::MatrixXd squares = squares_of(codes.front());
      for (const Rounded& part : codes.subspan(1)) squares += squares_of(part);
      upper += squares.cwiseSqrt();
    }
    const auto passing = (upper.rowwise() - thresholds.transpose()).array() >= 0.0;
    return static_cast<double>(passing.count()) / static_cast<double>(upper.size());
  }

 private:
  /// Of rows as they are, of which a few coordinates may be far larger than the others.
  static double typically_lost_to_bytes(const Eigen::MatrixXd& rows) {
    const Eigen::ArrayXd steps = rows.cwiseAbs().rowwise().maxCoeff().array() / 127.0;
    const Eigen::ArrayXd lengths = rows.rowwise().norm().array().max(kLeastLift);
    return (steps / lengths).mean() * std::sqrt(static_cast<double>(rows.cols()) / 12.0);
  }

  /// Of what rounding takes at the most of each row's product with each context.
  static Eigen::MatrixXd squares_of(const Rounded& part) {
    return times_transposed(part.lost * part.lost * (part.to.rows - part.from.rows).cwiseMax(0.0),
                            (part.to.contexts - part.from.contexts).cwiseMax(0.0));
  }

  /// What each row of X has outside of Q's.
  static Eigen::VectorXd length_outside(const Eigen::MatrixXd& Q, const Eigen::MatrixXd& X) {
    if (Q.rows() == Q.cols()) return Eigen::VectorXd::Zero(X.rows());
    const Eigen::VectorXd squares =
        X.rowwise().squaredNorm() - times_transposed(X, Q).rowwise().squaredNorm();
    return squares.cwiseMax(0.0).cwiseSqrt();
  }

  Eigen::MatrixXd rows_;              ///< [some×width]
  Eigen::MatrixXd contexts_;          ///< [n×width]
  Eigen::VectorXd outside_rows_;      ///< [some]
  Eigen::VectorXd outside_contexts_;  ///< [n]
  Eigen::MatrixXd estimates_;         ///< [some×n]
  Eigen::VectorXd steps_;             ///< [width]
  double lost_to_bytes_ = kLostToInt8;
  Eigen::VectorXd row_squares_;
  Eigen::VectorXd context_squares_;
  Eigen::Index met_ = 0;
};

/// Cache lines of a tail to choose among.
inline constexpr std::array<std::size_t, 16> kTailLines = {1,  2,  3,  4,  6,  8,   12,  16,
                                                           24, 32, 48, 64, 96, 128, 192, 256};

/// The same widths with tails of every length, for contexts of so many coordinates.
inline void add_tails(CodeWidths widths, std::size_t coordinates, std::vector<CodeWidths>& all) {
  for (const std::size_t lines : kTailLines) {
    widths.width = std::min(widths.prefix + kernels::PrefixTails::width_of(lines), coordinates);
    if (widths.width >= widths.end()) all.push_back(widths);
    if (widths.width == coordinates) return;
  }
}

/// Widths to choose among: those in int2 only where codes are dithered, then all behind the others. Where
/// contexts differ in all directions a few coordinates that only count by their length let most rows pass, so
/// all are in codes in some of the choices, and all in bytes in the last.
inline std::vector<CodeWidths> code_widths(std::size_t coordinates, bool dithered) {
  constexpr std::size_t kSegment = kernels::CodeContext::kSegment;
  std::set<std::size_t> prefixes(kCodePrefixes.begin(), kCodePrefixes.end());
  const std::size_t beside_segments = coordinates % kSegment;
  if (beside_segments != 0 && beside_segments % 4 == 0) prefixes.insert(beside_segments);
  std::vector<CodeWidths> all;
  for (const std::size_t prefix : prefixes) {
    if (prefix > coordinates) break;
    const std::size_t room = (coordinates - prefix) / kSegment * kSegment;
    add_tails({.prefix = prefix}, coordinates, all);
    if (dithered && room > 0) add_tails({.prefix = prefix, .int2 = room}, coordinates, all);
    for (const std::size_t int4 : kInt4Widths) {
      if (int4 >= room) break;
      add_tails({.prefix = prefix, .int4 = int4}, coordinates, all);
      if (dithered) add_tails({.prefix = prefix, .int4 = int4, .int2 = room - int4}, coordinates, all);
    }
    if (room > 0) add_tails({.prefix = prefix, .int4 = room}, coordinates, all);
  }
  const std::size_t in_bytes = coordinates / 4 * 4;
  if (in_bytes > 0) add_tails({.prefix = in_bytes}, coordinates, all);
  return all;
}

/// What to read where there are no contexts to choose by: all coordinates, in int4 but for the first. Where
/// contexts turn out to lie in few directions that is twice what would do; in many, less rules nothing out.
inline CodeWidths widths_without_contexts(std::size_t coordinates) {
  constexpr std::size_t kSegment = kernels::CodeContext::kSegment;
  const std::size_t first = std::min(coordinates, kSegment + coordinates % kSegment);
  const std::size_t prefix = std::max<std::size_t>(first / 4 * 4, 4);
  const std::size_t rest = coordinates - std::min(prefix, coordinates);
  return {.prefix = prefix, .int4 = rest / kSegment * kSegment, .width = coordinates};
}

/// How many rows pass some contexts by what their prefixes have, and by all that they have.
class CodesPassing {
 public:
  /// Codes are dithered, and reach that far (Dither::reach_of), or 0. Cost: 4,096·(d·M + n·M) for n contexts
  /// and M coordinates, and 4,096·n for each end of a prefix or of a tail.
  CodesPassing(const SoftmaxLayer& layer, const CoordinateBasis& basis, const Trials& trials,
               const FoundThresholds& found, double reach, const std::vector<CodeWidths>& choices)
      : reach_(reach) {
    CodeTrials met(layer, basis, trials);
    const auto vocab = static_cast<double>(layer.vocab());
    const CodeTrials::Lengths none = met.squares();
    for (const CodeWidths& widths : choices) {
      for (const std::size_t end : {widths.prefix, widths.prefix + widths.int4, widths.end(), widths.width})
        squares_[end] = {};
    }
    for (auto& [end, at_end] : squares_) {
      met.meet(end);
      at_end = met.squares();
      for (const CodeWidths& widths : choices) {
        if (widths.end() == end && !by_prefix_.contains(key(widths))) {
          // Rows are rounded to bytes in their prefixes, contexts where they meet dithered codes.
          const std::size_t in_bytes = reach_ > 0.0 ? end : widths.prefix;
          by_prefix_[key(widths)] =
              vocab * met.share_passing(found.at(end), {none, squares_.at(in_bytes), met.lost_to_bytes()},
                                        codes_of(widths));
        }
        if (widths.width == end && !by_all_.contains(end)) {
          by_all_[end] = vocab * met.share_passing(trials.thresholds, {none, at_end, met.lost_to_bytes()});
        }
      }
    }
  }

  double by_prefix(const CodeWidths& widths) const { return by_prefix_.at(key(widths)); }
  double by_all(const CodeWidths& widths) const { return by_all_.at(widths.width); }

 private:
  using Key = std::array<std::size_t, 3>;
  static Key key(const CodeWidths& widths) { return {widths.prefix, widths.int4, widths.int2}; }

  std::array<CodeTrials::Rounded, 2> codes_of(const CodeWidths& widths) const {
    const CodeTrials::Lengths& int4 = squares_.at(widths.prefix + widths.int4);
    const double to_int4 = reach_ > 0.0 ? lost_to_dithered(4, widths.int4, reach_) : kLostToInt4;
    return {{{squares_.at(widths.prefix), int4, to_int4},
             {int4, squares_.at(widths.end()), lost_to_dithered(2, widths.int2, reach_)}}};
  }

  double reach_;
  std::map<std::size_t, CodeTrials::Lengths> squares_;
  std::map<Key, double> by_prefix_;
  std::map<std::size_t, double> by_all_;
};

/// What the bound of a row costs.
inline double cost_of_row(const CodeWidths& widths) {
  return kRowCost + static_cast<double>(widths.prefix) + (widths.end() > widths.prefix ? kCodeRowCost : 0.0) +
         kInt4Cost * static_cast<double>(widths.int4) + kInt2Cost * static_cast<double>(widths.int2);
}

/// The choice that makes least work for some contexts, given their coordinates: of some widths, each with the
/// scans whose boxes have no more coordinates than its prefix. Codes are dithered, and reach that far, or 0.
inline CodeChoice choose_codes(const SoftmaxLayer& layer, const CoordinateBasis& basis, const Trials& trials,
                               const FoundThresholds& found, double reach,
                               const std::vector<CodeWidths>& choices, std::span<const FirstScan> scans) {
  const CodesPassing passing(layer, basis, trials, found, reach, choices);
  const auto coordinates = static_cast<std::size_t>(basis.Q.rows());
  const bool own = basis.is_identity();
  CodeChoice best{.coordinates = coordinates, .own = own};
  for (const CodeWidths& widths : choices) {
    const double later =
        passing.by_prefix(widths) * tail_cost(layer.vocab(), widths.tails().lines()) +
        passing.by_all(widths) * kScoredByteCost * static_cast<double>(layer.rows().bytes(1)) +
        (own ? 0.0 : transform_cost(layer.dim(), coordinates));
    for (const FirstScan& scan : scans) {
      if (scan.box_width > widths.prefix) continue;
      const double cost = scan.boxes + scan.rows * cost_of_row(widths) + later;
      if (cost < best.cost) best = {widths, scan, coordinates, own, cost};
    }
  }
  return best;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
