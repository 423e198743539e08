// SPDX-License-Identifier: Apache-2.0
#include "screeners/bound_chooser.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "screeners/bound_coordinates.hpp"
#include "screeners/prefix_options.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/kernels/prefix_tails.hpp"

namespace topksoftmax {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr std::size_t kBlockRows = kernels::PrefixBlocks::kRows;
constexpr std::array<std::size_t, 10> kPrefixes = {8, 16, 24, 32, 48, 64, 96, 128, 192, 256};
/// What is taken for the prefix before, or without, choosing it.
constexpr std::size_t kTypicalPrefix = 32;
/// Cache lines of a tail.
constexpr std::array<std::size_t, 12> kTailLines = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
/// A width that takes one line of any tail.
constexpr std::size_t kOneLine = 0;
/// What may lie outside of the coordinates, of E‖w‖², where there are no contexts to tell: if contexts lie
/// like rows do, so much of ‖w‖‖h‖ is less than what parts the best rows from most.
constexpr double kLongestRest = 0.1;
/// Rows that stand for all where the tails' length is chosen.
constexpr Index kSampledRows = 8192;

// Work, in bytes of prefixes that are scanned: streams are cheap, gathered rows are not.

/// What a row takes whatever its prefix.
constexpr double kRow = 24.0;
/// One that is looked at by a tail of one cache line.
constexpr double kTail = 400.0;
/// Each more line of it.
constexpr double kTailLine = 96.0;
/// A byte of a row that is scored.
constexpr double kScoredByte = 3.0;
/// What a row of a box that is opened takes, of what it does where all are read in their order.
constexpr double kOpened = 1.5;
/// Rows that are scored, of those that pass; guessed where tails are one line.
constexpr double kScoredShare = 0.25;

/// Coordinates that so many cache lines of a tail hold.
std::size_t tail_width(std::size_t lines) {
  return kernels::PrefixTails::kWidthOfLine + (lines - 1) * kernels::PrefixTails::kLine;
}

/// Cache lines that a tail takes for so many coordinates at the least, prefix included.
std::size_t tail_lines(std::size_t prefix, std::size_t least_width) {
  const kernels::PrefixTails tails{.width = least_width - std::min(prefix, least_width)};
  return tails.row_bytes() / kernels::PrefixTails::kLine;
}

/// How many blocks and rows a prefix lets pass, in the mean over some contexts.
struct Passing {
  double boxes = 0.0;
  double rows = 0.0;
};

Passing count_passing(const RowCoordinates& rows, const VectorXd& biases, const VectorXd& thresholds,
                      const ContextCoordinates& contexts, std::span<const TokenId> order,
                      std::size_t prefix) {
  const auto p = static_cast<Index>(prefix);
  const Index rest = rows.inside.cols() - p;
  const Index vocab = rows.inside.rows();
  const Index blocks = (vocab + static_cast<Index>(kBlockRows) - 1) / static_cast<Index>(kBlockRows);
  const VectorXd tails = rows.inside.rightCols(rest).rowwise().norm();
  // Columns: the coordinates, bias, ‖w'₂‖ and ‖w⊥‖, which a context meets with h'₁, 1, ‖h'₂‖ and ‖h⊥‖.
  MatrixXd low = MatrixXd::Constant(blocks, p + 3, std::numeric_limits<double>::infinity());
  MatrixXd high = -low;
  MatrixXd points(vocab, p + 3);
  points << rows.inside.leftCols(p), biases, tails, rows.outside;
  for (Index place = 0; place < vocab; ++place) {
    const Index block = place / static_cast<Index>(kBlockRows);
    const auto row = points.row(order[static_cast<std::size_t>(place)]);
    low.row(block) = low.row(block).cwiseMin(row);
    high.row(block) = high.row(block).cwiseMax(row);
  }
  Passing passing;
  VectorXd h(p + 3);
  for (Index i = 0; i < contexts.inside.rows(); ++i) {
    h << contexts.inside.row(i).head(p).transpose(), 1.0, contexts.inside.row(i).tail(rest).norm(),
        contexts.outside[i];
    passing.rows += static_cast<double>(((points * h).array() >= thresholds[i]).count());
    const VectorXd upper = high * h.cwiseMax(0.0) + low * h.cwiseMin(0.0);
    passing.boxes += static_cast<double>((upper.array() >= thresholds[i]).count());
  }
  passing.rows /= static_cast<double>(contexts.inside.rows());
  passing.boxes /= static_cast<double>(contexts.inside.rows());
  return passing;
}

/// How many rows of a layer may reach the thresholds by their first coordinates, in the mean over some
/// contexts, for each of some ascending widths.
std::vector<double> count_left(const MatrixXd& W, const VectorXd& biases, const Trials& trials,
                               const MatrixXd& directions, std::span<const std::size_t> widths) {
  const Index sampled = std::min(W.rows(), kSampledRows);
  MatrixXd sample(sampled, W.cols());
  MatrixXd bounds(sampled, trials.contexts.rows());
  for (Index i = 0; i < sampled; ++i) {
    const Index row = i * W.rows() / sampled;
    sample.row(i) = W.row(row);
    bounds.row(i).setConstant(biases[row]);
  }
  const MatrixXd rows = sample * directions;
  const MatrixXd contexts = trials.contexts.cast<double>() * directions;
  std::vector<double> left;
  Index first = 0;
  for (const std::size_t width : widths) {
    const auto end = static_cast<Index>(width);
    bounds += rows.middleCols(first, end - first) * contexts.middleCols(first, end - first).transpose();
    const Index rest = W.cols() - end;
    const MatrixXd outside =
        rows.rightCols(rest).rowwise().norm() * contexts.rightCols(rest).rowwise().norm().transpose();
    const MatrixXd missing = (bounds + outside).rowwise() - trials.thresholds.transpose();
    left.push_back(static_cast<double>((missing.array() >= 0.0).count()) * static_cast<double>(W.rows()) /
                   static_cast<double>(bounds.size()));
    first = end;
  }
  return left;
}

}  // namespace

Trials::Trials(const SoftmaxLayer& layer, const MatrixXd& W, RowMajorMatrix some, std::size_t k)
    : contexts(std::move(some)),
      logits((W * contexts.cast<double>().transpose()).colwise() + layer.biases().cast<double>()),
      thresholds(contexts.rows()) {
  for (Index i = 0; i < contexts.rows(); ++i) {
    VectorXd sorted = logits.col(i);
    const auto kth = sorted.begin() + static_cast<Index>(std::min(k, layer.vocab()) - 1);
    std::nth_element(sorted.begin(), kth, sorted.end(), std::greater<>());
    thresholds[i] = *kth;
  }
}

/// A choice and what speaks for it.
struct BoundChooser::Estimate {
  Choice choice;
  double rows_passing = 0.0;  ///< rows that their prefixes let pass
};

std::size_t BoundChooser::width(std::size_t prefix, std::size_t least) const {
  // As many as lie in the cache lines behind the prefix; those that are computed at a time, whole.
  const std::size_t room = prefix + tail_width(tail_lines(prefix, least));
  const std::size_t wanted = options_.width != 0 ? options_.width : room / kernels::kSlack * kernels::kSlack;
  return std::min({wanted, layer_.dim(), kMostBoundWidth});
}

double BoundChooser::passing_cost(std::size_t prefix, std::size_t least_width) const {
  // Where tails are as wide as they need to be, what is scored after them no longer depends on the prefix.
  const double guessed = kScoredShare * kScoredByte * static_cast<double>(layer_.rows().bytes(1));
  return kTail + (least_width == kOneLine
                      ? guessed
                      : kTailLine * static_cast<double>(tail_lines(prefix, least_width) - 1));
}

ContextTransform BoundChooser::transform(std::size_t prefix, std::size_t least) const {
  return ContextTransform(coordinates_.choose(width(prefix, least)));
}

void BoundChooser::choose_prefix(std::size_t least_width, Estimate& estimate) const {
  const ContextTransform& transform = estimate.choice.transform;
  CertifiedOptions& options = estimate.choice.options;
  const std::size_t full = std::max<std::size_t>(transform.width() / 4 * 4, 4);
  if (trials_.contexts.rows() == 0) {
    const std::size_t quarter = least_width / 16 * 4;
    if (options.prefix == 0) options.prefix = std::min(std::max(kTypicalPrefix, quarter), full);
    if (options.boxes == BoundBoxes::automatic) options.boxes = BoundBoxes::never;
    return;
  }
  const RowCoordinates rows(W_, transform);
  const ContextCoordinates some(trials_.contexts, transform);
  const VectorXd biases = layer_.biases().cast<double>();
  const std::vector<TokenId> order = similar_rows(biases, rows, some);
  const auto vocab = static_cast<double>(layer_.vocab());
  double least = std::numeric_limits<double>::infinity();
  std::span<const std::size_t> prefixes = kPrefixes;
  if (options_.prefix != 0) prefixes = {&options_.prefix, 1};
  for (const std::size_t asked : prefixes) {
    const std::size_t prefix = std::min(asked, full);
    const Passing passing =
        count_passing(rows, biases, trials_.thresholds, some, order, std::min(prefix, transform.width()));
    const auto row_cost = static_cast<double>(prefix) + kRow;
    const double plain = vocab * row_cost;
    const double boxed = (2.0 * vocab / static_cast<double>(kBlockRows) +
                          kOpened * passing.boxes * static_cast<double>(kBlockRows)) *
                         row_cost;
    const double later = passing.rows * passing_cost(prefix, least_width);
    const auto consider = [&](BoundBoxes boxes, double cost) {
      if (options_.boxes != BoundBoxes::automatic && options_.boxes != boxes) return;
      if (cost >= least) return;
      least = cost;
      options.prefix = options_.prefix != 0 ? options_.prefix : prefix;
      options.boxes = boxes;
      estimate.rows_passing = passing.rows;
    };
    consider(BoundBoxes::never, plain + later);
    consider(BoundBoxes::always, boxed + later);
    if (prefix != asked || prefix >= full) break;
  }
}

BoundChooser::Estimate BoundChooser::choose_for(std::size_t least_width) const {
  Estimate estimate{.choice = {.transform = transform(kTypicalPrefix, least_width), .options = options_}};
  choose_prefix(least_width, estimate);
  auto& [transform_chosen, options] = estimate.choice;
  if (transform_chosen.width() != width(options.prefix, least_width)) {
    transform_chosen = transform(options.prefix, least_width);
  }
  options.width = std::max(transform_chosen.width(), options.prefix);
  return estimate;
}

std::size_t BoundChooser::choose_width(double rows_passing) const {
  std::vector<std::size_t> widths;
  for (const std::size_t lines : kTailLines) {
    const std::size_t next = width(kTypicalPrefix, kTypicalPrefix + tail_width(lines));
    if (!widths.empty() && next == widths.back()) break;
    widths.push_back(next);
  }
  const std::vector<double> left =
      count_left(W_, layer_.biases().cast<double>(), trials_, coordinates_.directions(), widths);
  const auto cost = [&](std::size_t i) {
    const auto M = static_cast<double>(widths[i]);
    const double transform = (2.0 * static_cast<double>(layer_.dim()) + 4.0 * M) * M;
    return transform + rows_passing * kTailLine * static_cast<double>(kTailLines[i]) +
           left[i] * kScoredByte * static_cast<double>(layer_.rows().bytes(1));
  };
  std::size_t best = 0;
  for (std::size_t i = 1; i < widths.size(); ++i) {
    if (cost(i) < cost(best)) best = i;
  }
  return best == 0 ? kOneLine : widths[best];
}

std::size_t BoundChooser::width_of_rows() const {
  const VectorXd shares = coordinates_.row_shares();
  double rest = shares.sum();
  std::size_t least_width = 0;
  for (; least_width < layer_.dim() && rest > kLongestRest; ++least_width) {
    rest -= shares[static_cast<Index>(least_width)];
  }
  return least_width <= width(kTypicalPrefix, kOneLine) ? kOneLine : least_width;
}

BoundChooser::Choice BoundChooser::choose() const {
  if (options_.width != 0) return choose_for(kOneLine).choice;
  if (trials_.contexts.rows() == 0) return choose_for(width_of_rows()).choice;
  Estimate estimate = choose_for(kOneLine);
  const std::size_t least_width = choose_width(estimate.rows_passing);
  if (least_width != kOneLine) estimate = choose_for(least_width);
  return std::move(estimate.choice);
}

}  // namespace topksoftmax
