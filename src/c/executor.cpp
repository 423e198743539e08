// SPDX-License-Identifier: Apache-2.0
#include "c/executor.hpp"

#include <algorithm>
#include <atomic>
#include <string>

#include "c/guard.hpp"

namespace topksoftmax::c {
namespace {

/// A loop on its way through the caller's code.
struct Loop {
  Executor::Body body;
  std::size_t parts;
  std::size_t threads;
  mutable std::atomic<std::size_t> done = 0;
  mutable std::atomic<bool> misused = false;
};

extern "C" void call_body(const void* loop, std::size_t part, std::size_t thread) {
  const Loop& called = *static_cast<const Loop*>(loop);
  if (part >= called.parts || thread >= called.threads) {
    called.misused = true;
    return;
  }
  called.body(part, thread);
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
  const Loop loop{body, parts, threads};
  if (functions_.run(functions_.user, parts, threads, call_body, &loop) != 0) {
    throw ExecutorFailed("executor.run has failed");
  }
  if (loop.misused) {
    throw ExecutorFailed("executor.run has called the body for a part or a thread that there is not");
  }
  if (loop.done != parts) {
    throw ExecutorFailed("executor.run has called the body " + std::to_string(loop.done) + " times for " +
                         std::to_string(parts) + " parts");
  }
}

}  // namespace topksoftmax::c
