// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>

#include "topksoftmax/top_k.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {

/// A growing block of uninitialised memory, aligned to a cache line. It never shrinks, so that a warm one
/// allocates nothing; growing forgets what it held.
class ScratchBuffer {
 public:
  /// Room for `count` values of T. Throws std::bad_alloc, and then stays as it was.
  template <class T>
  T* get(std::size_t count) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= kAlignment);
    const std::size_t bytes = count * sizeof(T) + kAlignment;
    if (bytes > capacity_) {
      const std::size_t grown = bytes + bytes / 2;
      storage_.reset(static_cast<std::byte*>(::operator new (grown, std::align_val_t{kAlignment})));
      capacity_ = grown;
    }
    return reinterpret_cast<T*>(storage_.get());
  }

 private:
  static constexpr std::size_t kAlignment = 64;
  struct Free {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<std::byte, Free> storage_;
  std::size_t capacity_ = 0;
};

/// A set of tokens that is emptied in O(1), and once in as many times as there are stamps in O(V).
template <class Stamp>
class StampedTokens {
 public:
  /// Empties the set and makes room for tokens below `vocab`.
  void clear(std::size_t vocab) {
    if (vocab > vocab_) {
      stamps_ = std::make_unique<Stamp[]>(vocab);
      vocab_ = vocab;
      stamp_ = 0;
    }
    if (++stamp_ == 0) {
      std::memset(stamps_.get(), 0, vocab_ * sizeof(Stamp));
      stamp_ = 1;
    }
  }

  /// Adds a token; false if it was there.
  bool insert(TokenId id) {
    Stamp& stamp = stamps_[static_cast<std::size_t>(id)];
    const bool added = stamp != stamp_;
    stamp = stamp_;  // in either case: no branch to guess wrong
    return added;
  }

  bool contains(TokenId id) const { return stamps_[static_cast<std::size_t>(id)] == stamp_; }

 private:
  std::unique_ptr<Stamp[]> stamps_;
  std::size_t vocab_ = 0;
  Stamp stamp_ = 0;
};

using TokenSet = StampedTokens<std::uint32_t>;

/// The memory that queries work in. One a thread; any backend may use any workspace, in any order. Once it
/// has served a query of some kind, queries of that kind allocate nothing.
struct Workspace {
  ScratchBuffer logits;      ///< of the candidates, or of all tokens
  ScratchBuffer candidates;  ///< their ids
  ScratchBuffer heap;        ///< the k best so far
  TokenSet seen;             ///< tokens already among the candidates
  ScratchBuffer biased;      ///< the candidates and the tokens that the query biases
  ScratchBuffer screen[7];   ///< for the screener alone
  TopK proposed;             ///< what the backend answers that another one is made of
};

}  // namespace topksoftmax
