// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "topksoftmax/c/topksoftmax.h"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/executor.hpp"

namespace topksoftmax::c {

/// The caller's executor, which is not trusted to keep its promises: run() throws ExecutorFailed where it
/// fails, and where it has not called the body once for every part, on threads below `threads`. No part is
/// done twice. So as to keep account of them without allocating, it is handed at most 4096 parts at a time.
class CallersExecutor final : public Executor {
 public:
  /// Throws std::invalid_argument where a function is missing.
  explicit CallersExecutor(const topk_executor& functions);

  std::size_t threads() const override;
  void run(std::size_t parts, std::size_t threads, Body body) const override;

 private:
  void run_some(std::size_t first, std::size_t parts, std::size_t threads, Body body) const;

  topk_executor functions_;
};

/// The caller's executor or, where there is none, the library's.
class ChosenExecutor {
 public:
  explicit ChosenExecutor(const topk_executor* given) {
    if (given != nullptr) callers_.emplace(*given);
  }

  const Executor& get() const {
    return callers_ ? static_cast<const Executor&>(*callers_) : default_executor();
  }

 private:
  std::optional<CallersExecutor> callers_;
};

/// As many threads of an executor as were lent.
class LentThreads final : public Executor {
 public:
  /// The caller's thread alone.
  LentThreads() : LentThreads(1, nullptr) {}
  /// So many; 0: all.
  LentThreads(std::size_t threads, const topk_executor* given)
      : most_(threads != 0 ? threads : SIZE_MAX), executor_(given) {}

  std::size_t threads() const override { return most_ == 1 ? 1 : std::min(most_, executor_.get().threads()); }
  std::size_t grain() const override { return executor_.get().grain(); }
  void run(std::size_t parts, std::size_t threads, Body body) const override {
    executor_.get().run(parts, threads, body);
  }

 private:
  std::size_t most_;
  ChosenExecutor executor_;
};

}  // namespace topksoftmax::c
