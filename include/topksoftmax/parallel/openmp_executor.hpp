// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <omp.h>

#include <cstddef>

#include "topksoftmax/config.hpp"
#include "topksoftmax/parallel/executor.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The threads of OpenMP, as many as omp_get_max_threads() says. Only for files that are compiled for OpenMP.
class OpenMpExecutor final : public Executor {
 public:
  std::size_t threads() const override { return static_cast<std::size_t>(omp_get_max_threads()); }

  void run(std::size_t parts, std::size_t threads, Body body) const override {
    const auto count = static_cast<std::ptrdiff_t>(parts);
#pragma omp parallel for schedule(dynamic) num_threads(static_cast <int>(threads))
    for (std::ptrdiff_t part = 0; part < count; ++part) {
      body(static_cast<std::size_t>(part), static_cast<std::size_t>(omp_get_thread_num()));
    }
  }
};

}  // namespace TOPKSOFTMAX_NAMESPACE
