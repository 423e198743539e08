// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "topksoftmax/certified/bounded_rows.hpp"
#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/prefix_tails.hpp"
#include "topksoftmax/shared_scan.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What guessing works in.
struct RowGuessScratch {
  ScratchBuffer estimates;  ///< of all rows, by their tails
  ScratchBuffer radii;
  ScratchBuffer places;
  ScratchBuffer weights;  ///< of all rows
  ScratchBuffer sums;     ///< of the weights of blocks
  ScratchBuffer maxima;   ///< and their largest ones
  ScratchBuffer likely;   ///< places of rows with high estimates
  ScratchBuffer likely_maxima;
};

/// A guess of every row's weight, exp((logit − the best one guessed)/temperature): by its prefix, or,
/// sharper, by all its coordinates. Rows are named by their places in the index. The weight of one that is
/// forbidden or biased is 0.
class RowGuesses {
 public:
  RowGuesses(const BoundedQuery& bounded, double temperature)
      : bounded_(bounded),
        scratch_(bounded.workspace.scratch<RowGuessScratch>()),
        rows_(every_row(bounded)),
        temperature_(temperature) {
    guess(rows_.estimates);
  }

  std::size_t count() const { return rows_.count; }
  float weight(std::size_t place) const { return weights_[place]; }
  /// A logit whose weight is 1; not finite where there is no guess.
  double best() const { return best_; }
  /// Rows that may have a weight: those that are neither forbidden nor biased.
  std::size_t possible() const {
    return static_cast<std::size_t>(
        std::count_if(products_, products_ + count(), [](float product) { return product != kForbidden; }));
  }
  /// What a row's logit is guessed to be.
  float estimate(std::size_t place) const {
    float logit = products_[place];
    kernels::transform(bounded_.layer.transform(), &logit, 1);
    return logit;
  }
  /// Calls visit(place) for at least `wanted` of the rows with the highest estimates, or for all.
  template <class Visit>
  void visit_likely(std::size_t wanted, const Visit& visit) const {
    auto* const places = scratch_.likely.get<TokenId>(count() + kernels::kSlack);
    auto* const maxima = scratch_.likely_maxima.get<float>(kernels::maxima_room(count()));
    const std::size_t found =
        kernels::promising(products_, count(), std::min(wanted, possible()), maxima, places);
    for (std::size_t i = 0; i < found; ++i) visit(static_cast<std::size_t>(places[i]));
  }
  /// Of all weights.
  double sum() const { return std::accumulate(sums_, sums_ + blocks(), 0.0); }

  /// Of the weights above a limit.
  double sum_above(float limit) const {
    double sum = 0.0;
    for (std::size_t block = 0; block < blocks(); ++block) {
      if (!(maxima_[block] > limit)) continue;
      sum += sum_of([limit](float weight) { return weight > limit ? weight : 0.0F; }, block * kBlock,
                    end_of(block));
    }
    return sum;
  }

  /// Whether there is something to sharpen by, and what that reads.
  bool can_sharpen() const { return !is_sharp_ && !bounded_.index.tails.empty(); }
  std::size_t bytes_to_sharpen() const { return bounded_.index.tails.tails().bytes(); }

  /// Guesses all rows again, by all their coordinates.
  void sharpen() {
    auto* const estimates = scratch_.estimates.get<float>(count());
    auto* const radii = scratch_.radii.get<float>(count());
    auto* const places = scratch_.places.get<TokenId>(count());
    std::iota(places, places + count(), TokenId{0});
    std::copy_n(rows_.estimates, count(), estimates);
    tail_bounds(bounded_.workspace, bounded_.index.tails.tails(), bounded_.bounds.tail, places, count(),
                estimates, radii);
    is_sharp_ = true;
    guess(estimates);
  }

  /// Sets a row's weight to 0.
  void leave_out(std::size_t place) {
    weights_[place] = 0.0F;
    sum_up(place / kBlock);
  }

  /// Calls visit(place) for rows whose weights are above a limit; it may leave them out.
  template <class Visit>
  void visit_above(float limit, const Visit& visit) {
    for (std::size_t block = 0; block < blocks(); ++block) {
      if (!(maxima_[block] > limit)) continue;
      for (std::size_t place = block * kBlock; place < end_of(block); ++place) {
        if (weights_[place] > limit) visit(place);
      }
    }
  }

  /// Calls visit(place) for the row where the weights of those up to it first exceed a sum, for sums that
  /// ascend: next() gives them, and something negative in the end.
  template <class Next, class Visit>
  void visit_at_sums(const Next& next, const Visit& visit) const {
    double before = 0.0;
    double wanted = next();
    std::size_t last = 0;
    for (std::size_t block = 0; block < blocks() && wanted >= 0.0; ++block) {
      const double behind = before + static_cast<double>(sums_[block]);
      double sum = before;
      std::size_t place = block * kBlock;
      while (wanted >= 0.0 && wanted < behind) {
        for (; place < end_of(block); ++place) {
          if (!(weights_[place] > 0.0F)) continue;
          last = place;
          if (sum + static_cast<double>(weights_[place]) > wanted) break;
          sum += static_cast<double>(weights_[place]);
        }
        visit(last);  // the last one of the block where rounding lets no sum exceed what is wanted
        wanted = next();
      }
      before = behind;
    }
    while (wanted >= 0.0) {
      visit(last);
      wanted = next();
    }
  }

 private:
  static constexpr std::size_t kBlock = 64;
  static constexpr std::size_t kLanes = 16;

  std::size_t blocks() const { return (count() + kBlock - 1) / kBlock; }
  std::size_t end_of(std::size_t block) const { return std::min(count(), (block + 1) * kBlock); }

  /// Σ value(weight), in lanes that a compiler adds at once.
  template <class Value>
  float sum_of(const Value& value, std::size_t begin, std::size_t end) const {
    std::array<float, kLanes> lanes{};
    std::size_t place = begin;
    for (; place + kLanes <= end; place += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += value(weights_[place + lane]);
    }
    for (; place < end; ++place) lanes[0] += value(weights_[place]);
    return std::accumulate(lanes.begin(), lanes.end(), 0.0F);
  }

  void sum_up(std::size_t block) {
    const std::size_t begin = block * kBlock;
    sums_[block] = sum_of([](float weight) { return weight; }, begin, end_of(block));
    maxima_[block] = kernels::max(weights_ + begin, end_of(block) - begin);
  }

  void guess(const float* products) {
    products_ = products;
    const float* const logits = logit_estimates(bounded_, products, count());
    best_ = static_cast<double>(kernels::max(logits, count()));
    weights_ = scratch_.weights.get<float>(count());
    sums_ = scratch_.sums.get<float>(blocks());
    maxima_ = scratch_.maxima.get<float>(blocks());
    if (!std::isfinite(best_)) return;
    std::copy_n(logits, count(), weights_);
    kernels::transform({.scale = static_cast<float>(1.0 / temperature_)}, weights_, count());
    kernels::exp(weights_, count(), kernels::max(weights_, count()), weights_);
    for (std::size_t block = 0; block < blocks(); ++block) sum_up(block);
  }

  /// Estimates of logits from those of products.
  static const float* logit_estimates(const BoundedQuery& bounded, const float* products, std::size_t count) {
    const LogitTransform& transform = bounded.layer.transform();
    if (transform.is_identity()) return products;
    auto* const logits = bounded.scratch().transformed.get<float>(count);
    std::copy_n(products, count, logits);
    kernels::transform(transform, logits, count);
    return logits;
  }

  const BoundedQuery& bounded_;
  RowGuessScratch& scratch_;
  BoundedRows rows_;
  double temperature_;
  double best_ = 0.0;
  bool is_sharp_ = false;
  const float* products_ = nullptr;  ///< that weights are guessed by
  float* weights_ = nullptr;
  float* sums_ = nullptr;
  float* maxima_ = nullptr;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
