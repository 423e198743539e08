// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "topksoftmax/config.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The queue of a graph search, of length `ef`: the best rows found so far, best first, of which some have
/// been expanded (their links followed) and the others are still to be. HNSW keeps two heaps, of results and
/// of candidates; since no candidate worse than all ef results is ever expanded, one sorted list holds both.
///
/// Rows that may not be answered lead the search on but do not count towards ef.
class SearchBeam {
 public:
  /// Rows that a beam can tell apart: two bits of a number are its own.
  static constexpr std::size_t kMostRows = std::size_t{1} << 30;

  /// Room for `capacity` > ef rows in memory that the caller lends.
  SearchBeam(float* logits, std::uint32_t* rows, std::size_t capacity, std::size_t ef)
      : logits_(logits), rows_(rows), capacity_(capacity), ef_(ef) {}

  /// A row whose logit does not exceed this cannot enter any more.
  float threshold() const {
    return answerable_ < ef_ ? -std::numeric_limits<float>::infinity() : logits_[size_ - 1];
  }

  /// Whether there is no room left, which only rows that may not be answered can bring about. Nothing may be
  /// offered then.
  bool overflows() const { return size_ == capacity_; }

  /// Offers a row. Cost: O(log ef), and moving what ranks behind it.
  void offer(float logit, TokenId row, bool answerable) {
    if (!(logit > threshold())) return;
    const std::size_t at = rank(logit);
    std::memmove(logits_ + at + 1, logits_ + at, (size_ - at) * sizeof(float));
    std::memmove(rows_ + at + 1, rows_ + at, (size_ - at) * sizeof(std::uint32_t));
    logits_[at] = logit;
    rows_[at] = static_cast<std::uint32_t>(row) | (answerable ? 0U : kUnanswerable);
    ++size_;
    answerable_ += answerable ? 1U : 0U;
    while (answerable_ > ef_ || (answerable_ == ef_ && (rows_[size_ - 1] & kUnanswerable) != 0)) drop_last();
    if (at < next_) next_ = at;
  }

  /// The best row not expanded yet, which now counts as expanded; −1 if there is none.
  TokenId expand_next() {
    while (next_ < size_ && (rows_[next_] & kExpanded) != 0) ++next_;
    if (next_ == size_) return -1;
    rows_[next_] |= kExpanded;
    return static_cast<TokenId>(rows_[next_] & kRow);
  }

  /// Writes the rows that may be answered, best first, to out [capacity]; returns how many.
  std::size_t take(TokenId* out) const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < size_; ++i) {
      out[count] = static_cast<TokenId>(rows_[i] & kRow);
      count += (rows_[i] & kUnanswerable) == 0 ? 1U : 0U;
    }
    return count;
  }

 private:
  static constexpr std::uint32_t kExpanded = 1U << 31;
  static constexpr std::uint32_t kUnanswerable = 1U << 30;
  static constexpr std::uint32_t kRow = kUnanswerable - 1;

  /// How many rows rank before a new one: those with a logit no smaller.
  std::size_t rank(float logit) const {
    std::size_t first = 0;
    std::size_t count = size_;
    while (count > 1) {  // halves without a branch to guess wrong
      const std::size_t half = count / 2;
      first += logits_[first + half - 1] >= logit ? half : 0;
      count -= half;
    }
    return first + (count == 1 && logits_[first] >= logit ? 1U : 0U);
  }

  void drop_last() {
    --size_;
    answerable_ -= (rows_[size_] & kUnanswerable) == 0 ? 1U : 0U;
  }

  float* logits_;
  std::uint32_t* rows_;
  std::size_t capacity_;
  std::size_t ef_;
  std::size_t size_ = 0;
  std::size_t answerable_ = 0;
  std::size_t next_ = 0;  ///< all before it have been expanded
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
