// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>

#include "topksoftmax/config.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

TOPKSOFTMAX_INLINE Workspace::AnyHolder& Workspace::holder(const void* key,
                                                           std::unique_ptr<AnyHolder> (*make)()) {
  for (const Entry& entry : entries_) {
    if (entry.key == key) return *entry.holder;
  }
  return *entries_.emplace_back(Entry{key, make()}).holder;
}

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

TOPKSOFTMAX_INLINE std::size_t shared_size(const Workspace& workspace, std::size_t total, std::size_t bytes) {
  const Crew& crew = workspace.crew();
  const bool is_alone = crew.executor == nullptr || crew.threads == 1;
  const std::size_t most = is_alone ? 1 : total * bytes / std::max<std::size_t>(crew.executor->grain(), 1);
  std::size_t parts = std::clamp<std::size_t>(most, 1, 4 * crew.threads);
  // As many for every thread: of three parts, one of two threads would do two.
  if (parts > crew.threads) parts -= parts % crew.threads;
  return std::max<std::size_t>((total + parts - 1) / parts, 1);
}

TOPKSOFTMAX_INLINE void run_shared(const Crew& crew, std::size_t parts, Executor::Body body) {
  if (parts > 1) return run_parts(*crew.executor, crew.threads, parts, body);
  if (parts == 1) body(0, 0);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
