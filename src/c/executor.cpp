// SPDX-License-Identifier: Apache-2.0
#include "c/executor.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "c/guard.hpp"

namespace topksoftmax::c {
namespace {

constexpr std::size_t kPartsAtOnce = 4096;

/// Consecutive parts of a loop on their way through the caller's code.
struct Loop {
  Executor::Body body;
  std::size_t first;
  std::size_t parts;
  std::size_t threads;
  mutable std::array<std::atomic<std::uint64_t>, kPartsAtOnce / 64> begun = {};  ///< a bit a part
  mutable std::atomic<std::size_t> done = 0;
  mutable std::atomic<bool> misused = false;
  mutable std::atomic<bool> repeated = false;
};

extern "C" void call_body(const void* loop, std::size_t part, std::size_t thread) {
  const Loop& called = *static_cast<const Loop*>(loop);
  if (part >= called.parts || thread >= called.threads) {
    called.misused = true;
    return;
  }
  const std::uint64_t bit = std::uint64_t{1} << (part % 64);
  if ((called.begun[part / 64].fetch_or(bit, std::memory_order_relaxed) & bit) != 0) {
    called.repeated = true;
    return;
  }
  called.body(called.first + part, thread);
  ++called.done;
}

}  // namespace

CallersExecutor::CallersExecutor(const topk_executor& functions) : functions_(functions) {
  required(functions.threads, "executor.threads");
  required(functions.run, "executor.run");
}

std::size_t CallersExecutor::threads() const {
  return std::max<std::size_t>(functions_.threads(functions_.user), 1);
}

void CallersExecutor::run(std::size_t parts, std::size_t threads, Body body) const {
  for (std::size_t first = 0; first < parts; first += kPartsAtOnce) {
    run_some(first, std::min(kPartsAtOnce, parts - first), threads, body);
  }
}

void CallersExecutor::run_some(std::size_t first, std::size_t parts, std::size_t threads, Body body) const {
  const Loop loop{body, first, parts, threads};
  if (functions_.run(functions_.user, parts, threads, call_body, &loop) != 0) {
    throw ExecutorFailed("executor.run has failed");
  }
  if (loop.misused) {
    throw ExecutorFailed("executor.run has called the body with a part or thread number out of range");
  }
  if (loop.repeated) {
    throw ExecutorFailed("executor.run has called the body more than once for the same part");
  }
  if (loop.done != parts) {
    throw ExecutorFailed("executor.run has called the body " + std::to_string(loop.done) + " times for " +
                         std::to_string(parts) + " parts");
  }
}

}  // namespace topksoftmax::c
