// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "topksoftmax/certified/building/code_choice.hpp"
#include "topksoftmax/certified/building/context_coordinates.hpp"
#include "topksoftmax/certified/building/coordinates.hpp"
#include "topksoftmax/certified/building/costs.hpp"
#include "topksoftmax/certified/building/found_thresholds.hpp"
#include "topksoftmax/certified/building/row_projector.hpp"
#include "topksoftmax/certified/building/similar_rows.hpp"
#include "topksoftmax/certified/building/trials.hpp"
#include "topksoftmax/certified/dither.hpp"
#include "topksoftmax/certified/options.hpp"
#include "topksoftmax/certified/transform.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/kernels/prefix_tails.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/rows/layer_rows.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What the coordinates are, and all options.
struct BoundChoice {
  ContextTransform transform;
  CertifiedOptions options;
};

/// Chooses what CertifiedOptions leave open by the work that it makes for some contexts.
class BoundChooser {
 public:
  /// Refers to all of them.
  BoundChooser(const SoftmaxLayer& layer, const LearnedCoordinates& coordinates, const Trials& trials,
               const CertifiedOptions& options, const StepProgress& report, const Executor& executor)
      : layer_(layer),
        coordinates_(coordinates),
        trials_(trials),
        options_(options),
        report_(report),
        executor_(executor) {}

  BoundChoice choose() const;

 private:
  /// A choice and what speaks for it.
  struct Estimate {
    BoundChoice choice;
    double rows_passing = 0.0;       ///< rows that their prefixes let pass
    double scan_cost = 0.0;          ///< of what is bounded first
    std::vector<FirstScan> scans{};  ///< what can be, whatever the prefix
  };

  /// Coordinates in all, and the cost of what comes after the first scan.
  struct WidthChoice {
    std::size_t least_width = 0;
    double cost = 0.0;
  };

  /// Coordinates in all with this prefix, where `least` are wanted at the least.
  std::size_t width(std::size_t prefix, std::size_t least) const;
  /// Coordinates of a width; those of all dimensions, which are dear, are learned once.
  CoordinateBasis basis(std::size_t width) const;
  const CoordinateBasis& whole_basis() const;
  ContextTransform transform(std::size_t prefix, std::size_t least) const;
  /// What queries find by the coordinates of a typical prefix: in others it is hardly different.
  const FoundThresholds& found() const;

  /// The cost of a row that its prefix lets pass.
  double passing_cost(std::size_t prefix, std::size_t least_width) const;

  /// The prefix that makes least work, and whether to have boxes, where so many coordinates are wanted.
  void choose_prefix(std::size_t least_width, Estimate& estimate) const;
  Estimate choose_for(std::size_t least_width) const;

  /// The coordinates that make least work where so many rows pass, and without contexts.
  WidthChoice choose_width(double rows_passing) const;
  std::size_t width_of_rows() const;

  /// What the first scan may read, with these coordinates.
  std::vector<FirstScan> first_scans(const RowCoordinates& rows, const Eigen::VectorXd& biases,
                                     const ContextCoordinates& contexts) const;

  /// The same before codes that are asked for: boxes are counted where there may be some, and contexts.
  std::vector<FirstScan> scans_before_codes() const;

  /// Coordinates in codes that make least work, or those that are asked for.
  CodeChoice choose_code_widths(std::span<const FirstScan> scans) const;
  std::vector<CodeWidths> widths_of_codes(std::size_t coordinates) const;
  /// All coordinates in bytes, as the layer has them, which costs no more than an int8 scan: where rows are
  /// so few that a transform is dear beside them. Otherwise no choice, of infinite cost. It counts as cheaper
  /// than it is, so that others are only taken where they surely save work.
  CodeChoice own_coordinates() const;
  /// Coordinates with these in codes behind some in int8, others in tails.
  BoundChoice with_codes(const CodeChoice& codes) const;

  const SoftmaxLayer& layer_;
  const LearnedCoordinates& coordinates_;
  const Trials& trials_;
  const CertifiedOptions& options_;
  const StepProgress& report_;
  const Executor& executor_;
  mutable std::optional<CoordinateBasis> whole_basis_;
  mutable std::optional<FoundThresholds> found_;
  /// Rows that what passes is counted of, alike in the first coordinates that are tried: in others they are
  /// hardly less so, and placing all rows is most of the work.
  mutable std::vector<TokenId> counted_;
};

inline constexpr std::array<std::size_t, 10> kPrefixWidths = {8, 16, 24, 32, 48, 64, 96, 128, 192, 256};
inline constexpr std::array<std::size_t, 3> kBoxWidths = {8, 16, 32};
/// What is taken for boxes without choosing their width.
inline constexpr std::size_t kTypicalBox = 16;
/// What is taken for the prefix before, or without, choosing it.
inline constexpr std::size_t kTypicalPrefix = 32;
/// A width that takes one line of any tail.
inline constexpr std::size_t kOneLine = 0;
/// What may lie outside of the coordinates, of E‖w‖², where there are no contexts to tell: if contexts lie
/// like rows do, so much of ‖w‖‖h‖ is less than what parts the best rows from most.
inline constexpr double kLongestRest = 0.1;

/// So many rows for each dimension are few: of more, a transform is less than a sixteenth.
inline constexpr std::size_t kFewRows = 16;
/// The share of that choice's work that others may make. (On a Xeon, codes that were to save a third took a
/// third longer out of the second and the third cache: what codes cost differs more between processors than
/// what bytes do.)
inline constexpr double kSurelyLess = 0.65;

/// Blocks that what passes is counted of, at the most.
inline constexpr std::size_t kCountedBlocks = 1024;

/// The rows of some blocks of an order, evenly spaced.
inline std::vector<TokenId> some_blocks(const std::vector<TokenId>& order) {
  constexpr std::size_t kRowsOfBlock = kernels::PrefixBlocks::kRows;
  const std::size_t blocks = order.size() / kRowsOfBlock;
  if (blocks <= kCountedBlocks) return order;
  std::vector<TokenId> some;
  for (std::size_t i = 0; i < kCountedBlocks; ++i) {
    const auto first =
        order.begin() + static_cast<std::ptrdiff_t>(i * blocks / kCountedBlocks * kRowsOfBlock);
    some.insert(some.end(), first, first + kRowsOfBlock);
  }
  return some;
}

/// Cache lines that a tail takes for so many coordinates at the least, prefix included.
inline std::size_t tail_lines(std::size_t prefix, std::size_t least_width) {
  return kernels::PrefixTails{.width = least_width - std::min(prefix, least_width)}.lines();
}

inline std::size_t BoundChooser::width(std::size_t prefix, std::size_t least) const {
  // As many as lie in the cache lines behind the prefix; those that are computed at a time, whole.
  const std::size_t room = prefix + kernels::PrefixTails::width_of(tail_lines(prefix, least));
  const std::size_t whole_slacks = room / kernels::kSlack * kernels::kSlack;
  const std::size_t wanted = options_.width != 0 ? options_.width : std::max(whole_slacks, least);
  return std::min({wanted, layer_.dim(), kernels::kMaxWidth});
}

inline const CoordinateBasis& BoundChooser::whole_basis() const {
  if (!whole_basis_) whole_basis_ = coordinates_.basis(layer_.dim(), executor_);
  return *whole_basis_;
}

inline CoordinateBasis BoundChooser::basis(std::size_t width) const {
  return width == layer_.dim() ? whole_basis() : coordinates_.basis(width, executor_);
}

inline ContextTransform BoundChooser::transform(std::size_t prefix, std::size_t least) const {
  return transform_of(basis(width(prefix, least)));
}

inline const FoundThresholds& BoundChooser::found() const {
  if (!found_) {
    found_.emplace(layer_, basis(width(kTypicalPrefix, kOneLine)), trials_, executor_);
  }
  return *found_;
}

inline double BoundChooser::passing_cost(std::size_t prefix, std::size_t least_width) const {
  // Where tails are as wide as they need to be, what is scored after them no longer depends on the prefix.
  if (least_width != kOneLine) return tail_cost(layer_.vocab(), tail_lines(prefix, least_width));
  return kTailCost + kScoredShare * kScoredByteCost * static_cast<double>(layer_.rows().bytes(1));
}

inline std::vector<FirstScan> BoundChooser::first_scans(const RowCoordinates& rows,
                                                        const Eigen::VectorXd& biases,
                                                        const ContextCoordinates& contexts) const {
  constexpr auto block_rows = static_cast<double>(kernels::PrefixBlocks::kRows);
  const auto vocab = static_cast<double>(layer_.vocab());
  std::vector<FirstScan> scans;
  if (options_.boxes != BoundBoxes::always) scans.push_back({.rows = vocab});
  if (options_.boxes == BoundBoxes::never) return scans;
  std::span<const std::size_t> widths = kBoxWidths;
  if (options_.box_width != 0) widths = {&options_.box_width, 1};
  for (const std::size_t asked : widths) {
    // Boxes have coordinates of the prefix.
    const std::size_t width = options_.prefix == 0 ? asked : std::min(asked, options_.prefix);
    const auto within = static_cast<std::size_t>(rows.inside.cols());
    const double opened =
        count_boxes_passing(rows, biases, trials_.thresholds, contexts, std::min(width, within), executor_) *
        vocab / static_cast<double>(rows.inside.rows());
    scans.push_back({width, kOpenedRows * opened * block_rows,
                     kBoxRows * vocab / block_rows * (static_cast<double>(width) + kRowCost)});
    if (width != asked) break;
  }
  return scans;
}

inline void BoundChooser::choose_prefix(std::size_t least_width, Estimate& estimate) const {
  const ContextTransform& transform = estimate.choice.transform;
  CertifiedOptions& options = estimate.choice.options;
  const std::size_t full = std::max<std::size_t>(transform.width() / 4 * 4, 4);
  if (trials_.count() == 0) {
    const std::size_t quarter = least_width / 16 * 4;
    if (options.prefix == 0) options.prefix = std::min(std::max(kTypicalPrefix, quarter), full);
    if (options.boxes == BoundBoxes::automatic) options.boxes = BoundBoxes::never;
    if (options.box_width == 0) options.box_width = std::min(kTypicalBox, options.prefix);
    return;
  }
  const RowProjector projector(layer_, transform);
  const ContextCoordinates contexts(trials_.contexts, transform, executor_);
  if (counted_.empty()) {
    constexpr double kOrdered = 0.3;  // of the choice
    counted_ =
        some_blocks(similar_rows(layer_, projector, contexts, share_of(report_, 0.0, kOrdered), executor_));
  }
  const std::vector<TokenId>& some = counted_;
  const RowCoordinates rows = projector.at(some);
  const Eigen::VectorXd biases = biases_at(layer_, some);
  const auto vocab = static_cast<double>(layer_.vocab());
  estimate.scans = first_scans(rows, biases, contexts);
  double least = std::numeric_limits<double>::infinity();
  std::span<const std::size_t> prefixes = kPrefixWidths;
  if (options_.prefix != 0) prefixes = {&options_.prefix, 1};
  for (const std::size_t asked : prefixes) {
    const std::size_t prefix = std::min(asked, full);
    const double passing = count_rows_passing(rows, biases, found().at(prefix), contexts,
                                              std::min(prefix, transform.width()), executor_) *
                           vocab / static_cast<double>(some.size());
    const double later = passing * passing_cost(prefix, least_width);
    for (const FirstScan& scan : estimate.scans) {
      const double cost = scan.boxes + scan.rows * (static_cast<double>(prefix) + kRowCost);
      if (cost + later >= least) continue;
      least = cost + later;
      options.prefix = options_.prefix != 0 ? options_.prefix : prefix;
      options.boxes = scan.box_width == 0 ? BoundBoxes::never : BoundBoxes::always;
      options.box_width = std::min(scan.box_width, options.prefix);
      estimate.rows_passing = passing;
      estimate.scan_cost = cost;
    }
    if (prefix != asked || prefix >= full) break;
  }
}

inline BoundChooser::Estimate BoundChooser::choose_for(std::size_t least_width) const {
  Estimate estimate{.choice = {.transform = transform(kTypicalPrefix, least_width), .options = options_}};
  choose_prefix(least_width, estimate);
  auto& [chosen, options] = estimate.choice;
  if (chosen.width() != width(options.prefix, least_width)) chosen = transform(options.prefix, least_width);
  options.width = std::max(chosen.width(), options.prefix);
  return estimate;
}

inline BoundChooser::WidthChoice BoundChooser::choose_width(double rows_passing) const {
  std::vector<std::size_t> widths;
  for (const std::size_t lines : kTailLines) {
    const std::size_t next = width(kTypicalPrefix, kTypicalPrefix + kernels::PrefixTails::width_of(lines));
    if (!widths.empty() && next == widths.back()) break;
    widths.push_back(next);
  }
  const std::vector<double> left = count_left(layer_, trials_, coordinates_.directions(executor_), widths);
  const auto cost = [&](std::size_t i) {
    return transform_cost(layer_.dim(), widths[i]) + rows_passing * tail_cost(layer_.vocab(), kTailLines[i]) +
           left[i] * kScoredByteCost * static_cast<double>(layer_.rows().bytes(1));
  };
  std::size_t best = 0;
  for (std::size_t i = 1; i < widths.size(); ++i) {
    if (cost(i) < cost(best)) best = i;
  }
  return {best == 0 ? kOneLine : widths[best], cost(best)};
}

inline std::vector<CodeWidths> BoundChooser::widths_of_codes(std::size_t coordinates) const {
  if (options_.code_width() == 0) {
    if (trials_.count() == 0) return {widths_without_contexts(coordinates)};
    return code_widths(coordinates, options_.failure_probability > 0.0);
  }
  // A layer may be narrower than what is asked for.
  constexpr std::size_t kSegment = kernels::CodeContext::kSegment;
  const std::size_t width = options_.width == 0 ? coordinates : std::min(options_.width, coordinates);
  const std::size_t room = width - std::min(options_.prefix, width);
  CodeWidths widths{.prefix = options_.prefix, .width = width};
  widths.int4 = std::min(options_.int4_width, room) / kSegment * kSegment;
  widths.int2 = std::min(options_.int2_width, room - widths.int4) / kSegment * kSegment;
  return {widths};
}

inline CodeChoice BoundChooser::choose_code_widths(std::span<const FirstScan> scans) const {
  const std::size_t coordinates = std::min(layer_.dim(), kernels::kMaxWidth);
  const std::vector<CodeWidths> widths = widths_of_codes(coordinates);
  if (trials_.count() == 0) {  // there is nothing to see
    FirstScan scan;
    if (options_.boxes == BoundBoxes::always) {
      scan.box_width = options_.box_width != 0 ? options_.box_width : kTypicalBox;
    }
    return {.widths = widths.front(), .scan = scan, .coordinates = coordinates};
  }
  const double failure = options_.failure_probability;
  const double reach = failure > 0.0 ? Dither::reach_of(options_.expected_k, failure) : 0.0;
  return choose_codes(layer_, basis(coordinates), trials_, found(), reach, widths, scans);
}

inline CodeChoice BoundChooser::own_coordinates() const {
  const std::size_t dim = layer_.dim();
  const CodeWidths widths{.prefix = dim / 4 * 4, .width = dim};
  const FirstScan scan{.rows = static_cast<double>(layer_.vocab())};
  const bool few = layer_.vocab() <= kFewRows * dim;
  if (!few || widths.prefix == 0 || options_.boxes == BoundBoxes::always) return {};
  if (trials_.count() == 0) {
    return {.widths = widths, .scan = scan, .coordinates = dim, .own = true, .cost = 0.0};
  }
  CodeChoice own =
      choose_codes(layer_, CoordinateBasis::identity(dim), trials_, found(), 0.0, {widths}, {&scan, 1});
  own.cost *= kSurelyLess;
  return own;
}

inline BoundChoice BoundChooser::with_codes(const CodeChoice& codes) const {
  BoundChoice choice{.transform = {}, .options = options_};
  CertifiedOptions& options = choice.options;
  options.prefix = codes.widths.prefix;
  options.int4_width = codes.widths.int4;
  options.int2_width = codes.widths.int2;
  options.boxes = codes.scan.box_width == 0 ? BoundBoxes::never : BoundBoxes::always;
  options.box_width = std::min(codes.scan.box_width, options.prefix);
  options.width = std::max(codes.widths.width, options.prefix);
  CoordinateBasis all = codes.own ? CoordinateBasis::identity(layer_.dim()) : basis(codes.coordinates);
  if (options.code_width() > 0) {
    all = coordinates_.stretched(std::move(all), std::min(codes.widths.end(), codes.coordinates));
  }
  choice.transform = transform_of(all);
  return choice;
}

inline std::size_t BoundChooser::width_of_rows() const {
  const Eigen::VectorXd shares = coordinates_.row_shares(executor_);
  double rest = shares.sum();
  std::size_t least_width = 0;
  for (; least_width < layer_.dim() && rest > kLongestRest; ++least_width) {
    rest -= shares[static_cast<Eigen::Index>(least_width)];
  }
  return least_width <= width(kTypicalPrefix, kOneLine) ? kOneLine : least_width;
}

inline std::vector<FirstScan> BoundChooser::scans_before_codes() const {
  const bool counted = options_.boxes != BoundBoxes::never && trials_.count() > 0;
  if (!counted) return {{.rows = static_cast<double>(layer_.vocab())}};
  return choose_for(kOneLine).scans;
}

inline BoundChoice BoundChooser::choose() const {
  const auto tell = [this](double done) {
    if (report_) report_(done);
  };
  if (options_.code_width() != 0) return with_codes(choose_code_widths(scans_before_codes()));
  if (options_.width != 0) return choose_for(kOneLine).choice;
  const bool may_have_codes = options_.prefix == 0 && options_.coordinates == BoundCoordinates::balanced &&
                              layer_.dim() <= kernels::kMaxWidth;
  if (trials_.count() == 0) {
    if (may_have_codes) return with_codes(std::min(choose_code_widths({}), own_coordinates(), costs_less));
    return choose_for(width_of_rows()).choice;
  }
  Estimate estimate = choose_for(kOneLine);
  tell(0.4);
  const WidthChoice width = choose_width(estimate.rows_passing);
  tell(0.6);
  if (width.least_width != kOneLine) estimate = choose_for(width.least_width);
  tell(0.8);
  if (may_have_codes) {
    const double cost = estimate.scan_cost + choose_width(estimate.rows_passing).cost;
    const CodeChoice codes = std::min(choose_code_widths(estimate.scans), own_coordinates(), costs_less);
    if (codes.cost < cost) return with_codes(codes);
  }
  return std::move(estimate.choice);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
