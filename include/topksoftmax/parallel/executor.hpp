// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Lends the library threads: a parallel loop over numbered parts. Builds, training, batches and single
/// queries take one; default_executor() is what they take where none is given. Make one of an engine's own
/// pool by deriving from it.
class Executor {
 public:
  /// The body of a loop: by reference, and it throws nothing.
  class Body {
   public:
    /// Refers to `body`, which must outlive the loop.
    template <class F>
    explicit Body(const F& body)
        : context_(&body), call_([](const void* context, std::size_t part, std::size_t thread) {
            (*static_cast<const F*>(context))(part, thread);
          }) {}

    /// Does part `part`, on thread `thread`.
    void operator()(std::size_t part, std::size_t thread) const { call_(context_, part, thread); }

   private:
    const void* context_;
    void (*call_)(const void* context, std::size_t part, std::size_t thread);
  };

  /// Threads that parts run on at the same time, at most: at least 1.
  virtual std::size_t threads() const = 0;

  /// Bytes that a part of a single query must read to be worth a thread, at least 1: about what a thread
  /// reads while a loop begins and ends. Unless it is overridden 1 MB, for threads that sleep between loops.
  virtual std::size_t grain() const { return std::size_t{1} << 20; }

  /// Calls body(part, thread) once for every part < parts, on at most `threads` ≥ 1 threads, in any order,
  /// and returns when all calls have. Two calls at the same time have different numbers of a thread, below
  /// `threads`. May be called from several threads at once, and from within a body. Where it throws (no
  /// thread can be started, say) no call of body is going on any more.
  virtual void run(std::size_t parts, std::size_t threads, Body body) const = 0;

 protected:
  Executor() = default;
  /// For those who derive from it.
  Executor(const Executor&) = default;
  /// For those who derive from it.
  Executor& operator=(const Executor&) = default;
  ~Executor() = default;  // whoever makes one deletes it as what it is
};

/// All parts on the caller's thread.
class SerialExecutor final : public Executor {
 public:
  std::size_t threads() const override { return 1; }
  void run(std::size_t parts, std::size_t /*threads*/, Body body) const override {
    for (std::size_t part = 0; part < parts; ++part) body(part, 0);
  }
};

}  // namespace TOPKSOFTMAX_NAMESPACE
