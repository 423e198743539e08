// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "topksoftmax/certified/bounds.hpp"
#include "topksoftmax/certified/index.hpp"
#include "topksoftmax/certified/row_guesses.hpp"
#include "topksoftmax/certified/survivors.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/numeric/split_mix.hpp"
#include "topksoftmax/numeric/tempered.hpp"
#include "topksoftmax/shared_scan.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Rows that tell of it, at least.
inline constexpr std::size_t kFewestScattered = 16;
/// Guesses that are off by the same but for this, relative to the logit, are of equal rows: many may be
/// equal, those of tokens that were never trained say, and tell no more than one of them.
inline constexpr double kAlike = 1e-5;
/// Once in a thousand times none of n draws meets rows that have 6.9/n of the mass. They are taken to be so
/// many more draws, off by the variance of the proportions that are known: (6.9/kThreeNines)².
inline constexpr double kUnseen = 3.7;
/// Of rows whose guesses are within two deviations of a limit, this share of the mass is taken to lie on its
/// other side.
inline constexpr double kWrongSide = 0.25;

/// What sampling works in.
struct RowSampleScratch {
  ScratchBuffer places;
  ScratchBuffer ids;
  ScratchBuffer logits;
};

/// A number, with the variance of the estimate that it is.
struct Estimated {
  double value = 0.0;
  double variance = 0.0;

  void add(double exact) { value += exact; }
};

/// What the weights of all tokens sum up to: exp((logit − best)/temperature).
struct Tally {
  Estimated mass;
  /// (1 − share)·Σ over those that rank before a token − share·Σ over all others, that one among them: below
  /// 0 where the nucleus has it.
  Estimated margin;
  /// The mean of weight/guess over rows that were read times that of guess/weight: 1 where guesses are right
  /// but for a factor, e^(σ²) where their logarithms are off by σ. Infinite where too few rows tell.
  double scatter = 1.0;
};

/// What is counted apart: the tokens before one of them. Without one, none.
struct Ranking {
  ScoredToken token = {std::numeric_limits<float>::infinity(), -1};
  double share = 0.0;

  /// What a token's weight counts for in the margin.
  double factor(bool is_before) const { return is_before ? 1.0 - share : -share; }
};

/// Tallies from the rows that count most and a sample of the others.
///
/// Rows whose guessed weights are large are all read. The others, laid end to end, each as long as its weight
/// is guessed to be, are divided into strata of one length, and a row is drawn at a random point of each.
/// What was guessed is summed over all rows, and what the rows drawn weigh more or less than guessed, in
/// proportion, is added for all: no bias, whatever the guesses, and a variance that is that of the
/// proportions (importance sampling with the guesses as control variate; Owen 2013, sections 8.9 and 9.1). It
/// is estimated as if rows were drawn without strata, which is no less (section 8.4).
///
/// Where guesses scatter far, a few heavy rows that are hardly ever drawn may have most of the mass, and the
/// variance of those that were drawn does not tell: Tally::scatter does. Nor does it tell of the rows that
/// have too little of the mass to be drawn: these are taken to be off as much as those that were read.
class RowSample {
 public:
  RowSample(const BoundedQuery& bounded, double temperature, const Ranking& ranking, std::uint64_t seed)
      : bounded_(bounded),
        guesses_(bounded, temperature),
        temperature_(temperature),
        ranking_(ranking),
        seed_(seed) {
    if (!is_usable()) return;
    best_ = guesses_.best();
    count_biased();
    count_ranked();
  }

  bool is_usable() const { return std::isfinite(guesses_.best()); }
  double best() const { return best_; }
  /// Rows that were read, those in vain included.
  std::size_t rows_read() const { return rows_read_; }

  bool can_sharpen() const { return guesses_.can_sharpen(); }
  std::size_t bytes_to_sharpen() const { return guesses_.bytes_to_sharpen(); }
  void sharpen() {
    guesses_.sharpen();
    scatter_ = {};
    for (std::size_t i = 0; i < read_.size(); ++i) leave_out(read_[i], logits_[i]);
  }

  /// Tallies with about so many strata.
  Tally tally(std::size_t strata) {
    const double sum = guesses_.sum();
    if (sum > 0.0) read_above(static_cast<float>(sum / static_cast<double>(strata)));
    Tally tally = exact_;
    const double left = guesses_.sum();
    Scatter scatter = scatter_;
    if (left > 0.0) add_sample(left, strata, tally, scatter);
    if (!scatter.tells()) {
      if (read_.size() >= guesses_.possible()) return tally;  // no row is left to be guessed
      if (read_likely()) return this->tally(strata);
    }
    tally.scatter = scatter.value();
    return tally;
  }

 private:
  /// See Tally::scatter.
  class Scatter {
   public:
    /// A row's logit, its weight as a share of what is guessed, and by how much the logit is off. Rows that
    /// are as far off as the one before them count with it.
    void add(float logit, double proportion, double off) {
      const double alike = kAlike * std::max(1.0, std::abs(static_cast<double>(logit)));
      const bool is_another = count_ == 0 || std::abs(off - last_off_) > alike;
      last_off_ = off;
      if (!is_another) return;
      sum_ += proportion;
      inverses_ += 1.0 / proportion;
      ++count_;
    }
    /// Whether there are enough rows to tell of others.
    bool tells() const { return count_ >= kFewestScattered; }
    double value() const {
      if (!tells()) return std::numeric_limits<double>::infinity();
      return mean() * inverses_ / static_cast<double>(count_);
    }
    /// Of the proportions, taken to be log-normal; 0 where the rows do not tell.
    double variance() const { return tells() ? mean() * mean() * std::max(0.0, value() - 1.0) : 0.0; }

   private:
    double mean() const { return sum_ / static_cast<double>(count_); }

    double sum_ = 0.0;
    double inverses_ = 0.0;
    std::size_t count_ = 0;
    double last_off_ = 0.0;
  };

  /// Rows that were read.
  struct Scored {
    const TokenId* ids;
    const float* logits;

    ScoredToken operator[](std::size_t i) const { return {logits[i], ids[i]}; }
  };

  /// Reads the rows at these places.
  Scored read(std::span<const std::size_t> places) {
    RowSampleScratch& scratch = bounded_.workspace.scratch<RowSampleScratch>();
    auto* const ids = scratch.ids.get<TokenId>(places.size());
    auto* const logits = scratch.logits.get<float>(places.size());
    for (std::size_t i = 0; i < places.size(); ++i) ids[i] = bounded_.index.token(places[i]);
    scan_gathered(bounded_.workspace, bounded_.layer.rows(), ids, places.size(), bounded_.query.h, logits);
    rows_read_ += places.size();
    return {ids, logits};
  }

  double weight_of(float logit) const { return std::exp(tempered(logit, best_, temperature_)); }

  void count_exactly(const ScoredToken& token) {
    if (static_cast<double>(token.logit) > best_) raise_best(static_cast<double>(token.logit));
    const double weight = weight_of(token.logit);
    exact_.mass.add(weight);
    exact_.margin.add(weight * ranking_.factor(ranks_before(token, ranking_.token)));
  }

  /// Makes 1 the weight of a logit that no guess reaches, a biased token's say: no sum leaves the numbers.
  void raise_best(double logit) {
    const double factor = std::exp((best_ - logit) / temperature_);
    exact_.mass.value *= factor;
    exact_.margin.value *= factor;
    best_ = logit;
  }

  /// Reads all rows whose weights are guessed to be above a limit.
  void read_above(float limit) {
    const std::size_t before = read_.size();
    guesses_.visit_above(limit, [this](std::size_t place) { read_.push_back(place); });
    read_from(before);
  }

  /// Reads rows of the highest estimates, once, where those that were read do not tell how far guesses are
  /// off; false where there are none.
  bool read_likely() {
    if (has_likely_) return false;
    has_likely_ = true;
    const std::size_t before = read_.size();
    guesses_.visit_likely(before + kFewestScattered, [&](std::size_t place) {
      const auto end = read_.begin() + static_cast<std::ptrdiff_t>(before);
      const bool has_enough = read_.size() - before >= 4 * kFewestScattered;  // as many may be equal
      if (!has_enough && std::find(read_.begin(), end, place) == end) read_.push_back(place);
    });
    read_from(before);
    return read_.size() > before;
  }

  /// Counts the rows exactly that have been named since there were so many.
  void read_from(std::size_t before) {
    const std::span<const std::size_t> places = std::span(read_).subspan(before);
    const Scored scored = read(places);
    for (std::size_t i = 0; i < places.size(); ++i) {
      logits_.push_back(scored[i].logit);
      leave_out(places[i], scored[i].logit);
      count_exactly(scored[i]);
    }
  }

  void add_to(Scatter& scatter, std::size_t place, float logit) const {
    const auto estimate = static_cast<double>(guesses_.estimate(place));
    scatter.add(logit, std::exp(tempered(logit, estimate, temperature_)),
                static_cast<double>(logit) - estimate);
  }

  /// Leaves out a row that is exact.
  void leave_out(std::size_t place, float logit) {
    add_to(scatter_, place, logit);
    guesses_.leave_out(place);
  }

  /// Tokens that the query biases have no guess.
  void count_biased() {
    visit_biased(bounded_, [this](const ScoredToken& token) {
      ++rows_read_;
      count_exactly(token);
    });
  }

  /// The token whose place is sought is never before itself, whatever is guessed of its row.
  void count_ranked() {
    if (ranking_.token.id < 0) return;
    const std::size_t place = bounded_.index.order.place(ranking_.token.id);
    if (!(guesses_.weight(place) > 0.0F)) return;  // it is biased, or weighs nothing
    read_.push_back(place);
    read_from(0);
  }

  /// Adds rows of which the weights are guessed to sum up to `sum`.
  void add_sample(double sum, std::size_t strata, Tally& tally, Scatter& scatter) {
    const double length = sum / static_cast<double>(strata);
    auto* const places = bounded_.workspace.scratch<RowSampleScratch>().places.get<std::size_t>(strata);
    std::size_t stratum = 0;
    std::size_t count = 0;
    const auto next = [&] {
      if (stratum == strata) return -1.0;
      const double uniform = unit_interval(split_mix(seed_, random_++));
      return (static_cast<double>(stratum++) + uniform) * length;
    };
    guesses_.visit_at_sums(next, [&](std::size_t place) { places[count++] = place; });
    const Scored scored = read({places, count});

    // Guesses are of weights whose 1 is another logit, which may be so far below that theirs is nothing here.
    const auto guessed_as = [this](float logit) {
      return std::exp(tempered(logit, guesses_.best(), temperature_));
    };
    const double unit = std::exp((guesses_.best() - best_) / temperature_);
    const auto limit = static_cast<float>(guessed_as(ranking_.token.logit));
    const double before = guesses_.sum_above(limit);
    tally.mass.value += sum * unit;
    tally.margin.value += (before * ranking_.factor(true) + (sum - before) * ranking_.factor(false)) * unit;
    Proportions of_mass;
    Proportions of_margin;
    for (std::size_t i = 0; i < count; ++i) {
      const float guess = guesses_.weight(places[i]);
      const double proportion = guessed_as(scored[i].logit) / static_cast<double>(guess);
      const bool is_before = ranks_before(scored[i], ranking_.token);
      if (i == 0 || places[i] != places[i - 1]) add_to(scatter, places[i], scored[i].logit);
      of_mass.add(proportion - 1.0);
      of_margin.add(proportion * ranking_.factor(is_before) - ranking_.factor(guess > limit));
    }
    const double unseen = kUnseen * std::max(scatter.variance(), scatter_.variance());
    of_mass.count(length * unit, unseen, tally.mass);
    // Rows near the token that are guessed to be on its other side count for the whole of their mass.
    const double sigma = std::min(1.0, 2.0 * std::sqrt(std::max(scatter.variance(), scatter_.variance())));
    const auto guessed_above = [&](double logs) {
      return guesses_.sum_above(static_cast<float>(static_cast<double>(limit) * std::exp(logs)));
    };
    const double near = ranking_.token.id < 0 ? 0.0 : guessed_above(-sigma) - guessed_above(sigma);
    of_margin.count(length * unit, std::max(unseen, kWrongSide * near / length), tally.margin);
  }

  /// What rows weigh more than guessed, as a share of the guess.
  class Proportions {
   public:
    void add(double x) {
      sum_ += x;
      squares_ += x * x;
      ++count_;
    }
    /// Adds what strata of one length weigh more than guessed; `unseen` is what rows that no draw meets add
    /// to the squares.
    void count(double length, double unseen, Estimated& estimated) const {
      const auto n = static_cast<double>(count_);
      estimated.value += length * sum_;
      const double spread = std::max(0.0, squares_ - sum_ * sum_ / n) + unseen;
      estimated.variance += length * length * spread * n / std::max(1.0, n - 1.0);
    }

   private:
    double sum_ = 0.0;
    double squares_ = 0.0;
    std::size_t count_ = 0;
  };

  const BoundedQuery& bounded_;
  RowGuesses guesses_;
  double temperature_;
  Ranking ranking_;
  std::uint64_t seed_;
  std::uint64_t random_ = 0;  ///< numbers drawn so far
  double best_ = 0.0;
  std::vector<std::size_t> read_;  ///< places of rows that are exact
  std::vector<float> logits_;      ///< of these
  Scatter scatter_;                ///< of these
  bool has_likely_ = false;        ///< whether those of the highest estimates are among these
  Tally exact_;
  std::size_t rows_read_ = 0;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
