// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>

#include "topksoftmax/config.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::kernels {

/// The best `capacity` ≥ 1 of the tokens pushed, in memory that the caller lends. Any order of pushes gives
/// the same tokens. A logit of −∞ marks a forbidden token and is never kept. Cost of a push that is kept:
/// O(log capacity).
class TopKHeap {
 public:
  /// An empty heap; `storage` has room for `capacity` tokens.
  TopKHeap(ScoredToken* storage, std::size_t capacity) : storage_(storage), capacity_(capacity) {}

  /// A token whose logit is below this cannot be kept any more.
  float threshold() const {
    return size_ < capacity_ ? -std::numeric_limits<float>::infinity() : storage_[0].logit;
  }

  /// Keeps a token if it is among the best so far.
  void push(ScoredToken token) {
    if (size_ < capacity_) {
      if (token.logit == -std::numeric_limits<float>::infinity()) return;
      storage_[size_++] = token;
      std::push_heap(storage_, storage_ + size_, ranks_before);
    } else if (ranks_before(token, storage_[0])) {
      replace_worst(token);
    }
  }

  /// Tokens kept.
  std::size_t size() const { return size_; }

  /// The tokens, best first. The heap is spent then: nothing may be pushed any more.
  std::span<const ScoredToken> sort() {
    std::sort_heap(storage_, storage_ + size_, ranks_before);
    return {storage_, size_};
  }

 private:
  void replace_worst(ScoredToken token) {
    std::size_t hole = 0;
    for (std::size_t child = 1; child < size_; child = 2 * hole + 1) {
      if (child + 1 < size_ && ranks_before(storage_[child], storage_[child + 1])) ++child;
      if (!ranks_before(token, storage_[child])) break;
      storage_[hole] = storage_[child];
      hole = child;
    }
    storage_[hole] = token;
  }

  ScoredToken* storage_;
  std::size_t capacity_;
  std::size_t size_ = 0;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
