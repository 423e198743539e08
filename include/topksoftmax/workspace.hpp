// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/storage/aligned_storage.hpp"
#include "topksoftmax/storage/cache_line.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// A growing block of uninitialised memory, aligned to a cache line. It never shrinks, so that a warm one
/// allocates nothing; growing forgets what it held.
class ScratchBuffer {
 public:
  /// Room for `count` values of T. Throws std::bad_alloc, and then stays as it was.
  template <class T>
  T* get(std::size_t count) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= detail::kCacheLine);
    const std::size_t bytes = count * sizeof(T) + detail::kCacheLine;
    if (bytes > capacity_) {
      const std::size_t grown = bytes + bytes / 2;
      storage_ = detail::aligned_memory(grown);
      capacity_ = grown;
    }
    return reinterpret_cast<T*>(storage_.get());
  }

 private:
  detail::AlignedStorage storage_;
  std::size_t capacity_ = 0;
};

/// A set of tokens that is emptied in O(1), but in O(V) once the stamps are used up.
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

  /// Whether a token is in the set.
  bool contains(TokenId id) const { return stamps_[static_cast<std::size_t>(id)] == stamp_; }

 private:
  std::unique_ptr<Stamp[]> stamps_;
  std::size_t vocab_ = 0;
  Stamp stamp_ = 0;
};

/// A set of tokens that is cleared at no cost, but once in 2³² − 1 times.
using TokenSet = StampedTokens<std::uint32_t>;

class Workspace;

/// Threads that a query or a batch may share its work over, lent by the caller.
struct Crew {
  const Executor* executor = nullptr;  ///< null: the caller's thread alone
  /// Threads to use at most, at least 1.
  std::size_t threads = 1;
  /// One for each of them, of which the first has this crew; null: no other than that.
  Workspace* workspaces = nullptr;
};

/// The memory that queries work in. One a thread; any backend may use any workspace, in any order. Once it
/// has served a query of some kind, queries of that kind allocate nothing.
///
/// Whoever works in it defines a type of scratch of its own, a struct of ScratchBuffers and TokenSets, and is
/// the only one to use that: so backends that stand on others do not meet in it. What lies in a scratch stays
/// there until its owner works again.
class TOPKSOFTMAX_EXPORT Workspace {
 public:
  /// The scratch of this type: made when it is first asked for (and then may throw std::bad_alloc), the same
  /// one ever after. Cost: a comparison of pointers for each type that this workspace has served.
  template <class Scratch>
  Scratch& scratch() {
    const auto make = [] { return std::unique_ptr<AnyHolder>(new Holder<Scratch>); };
    return static_cast<Holder<Scratch>&>(holder(&kKey<Scratch>, make)).scratch;
  }

  /// The threads that the query in progress may use.
  const Crew& crew() const { return crew_; }
  /// Lends these threads to queries in this workspace, until others are set.
  void set_crew(const Crew& crew) { crew_ = crew; }

 private:
  struct AnyHolder {
    virtual ~AnyHolder() = default;
  };
  template <class Scratch>
  struct Holder final : AnyHolder {
    Scratch scratch;
  };
  struct Entry {
    const void* key;
    std::unique_ptr<AnyHolder> holder;
  };
  template <class Scratch>
  static constexpr char kKey = 0;

  /// The one of this key; what `make` makes where there is none.
  AnyHolder& holder(const void* key, std::unique_ptr<AnyHolder> (*make)());

  std::vector<Entry> entries_;
  Crew crew_;
};

namespace detail {

/// Lends a workspace a crew for as long as this lives.
class LentCrew {
 public:
  LentCrew(Workspace& workspace, const Crew& crew) : workspace_(workspace), former_(workspace.crew()) {
    workspace.set_crew(crew);
  }
  /// Lends the first of at least one workspace as many of the executor's threads, each with its own.
  LentCrew(std::span<Workspace> workspaces, const Executor& executor)
      : LentCrew(workspaces[0],
                 {&executor, std::min(workspaces.size(), executor.threads()), workspaces.data()}) {}
  ~LentCrew() { workspace_.set_crew(former_); }
  LentCrew(const LentCrew&) = delete;
  LentCrew& operator=(const LentCrew&) = delete;

 private:
  Workspace& workspace_;
  Crew former_;
};

/// Items of a part, at least 1, where `total` of them, of `bytes` each to be read, are shared by the
/// workspace's crew.
TOPKSOFTMAX_EXPORT std::size_t shared_size(const Workspace& workspace, std::size_t total, std::size_t bytes);

/// Does every part < parts on a crew.
TOPKSOFTMAX_EXPORT void run_shared(const Crew& crew, std::size_t parts, Executor::Body body);

/// Calls body(first, count) for parts of `total` items, of `bytes` each to be read, on the workspace's crew.
/// What the parts compute must not depend on each other or on where one ends.
template <class Body>
void share(const Workspace& workspace, std::size_t total, std::size_t bytes, const Body& body) {
  const std::size_t size = shared_size(workspace, total, bytes);
  const auto run = [&](std::size_t part, std::size_t) {
    body(part * size, std::min(size, total - part * size));
  };
  run_shared(workspace.crew(), (total + size - 1) / size, Executor::Body(run));
}

/// Calls body(i, workspace) for every i < total, on the workspace's crew where that has workspaces, each
/// thread in its own; otherwise one after the other.
template <class Body>
void share_in_workspaces(Workspace& workspace, std::size_t total, const Body& body) {
  const Crew crew = workspace.crew();
  if (crew.workspaces == nullptr || total == 1) {
    for (std::size_t i = 0; i < total; ++i) body(i, workspace);
    return;
  }
  const LentCrew none(workspace, {});  // every thread is busy
  const auto run = [&](std::size_t i, std::size_t thread) { body(i, crew.workspaces[thread]); };
  run_shared(crew, total, Executor::Body(run));
}

}  // namespace detail

}  // namespace TOPKSOFTMAX_NAMESPACE

#if defined(TOPKSOFTMAX_HEADER_ONLY)
#include "topksoftmax/workspace-inl.hpp"
#endif
