// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "topksoftmax/kernels/implementation.hpp"

namespace topksoftmax::bench {

/// Sizes of what a kernel reads, to stay in the first, second or third cache of current processors, or in
/// none.
struct Footprint {
  std::string_view name;
  std::size_t bytes;
};
inline constexpr std::array<Footprint, 4> kFootprints = {
    {{"L1", 16 << 10}, {"L2", 512 << 10}, {"L3", 8 << 20}, {"memory", 256 << 20}}};

/// Registers a kernel's benchmark for every implementation that this processor runs and every footprint, as
/// kernel/instruction set/cache. `body` is called with the state, the implementation and the bytes.
template <class Body>
void register_kernel(const std::string& kernel, Body body) {
  for (const kernels::detail::Implementation& implementation : kernels::detail::implementations()) {
    for (const Footprint& footprint : kFootprints) {
      const std::string name =
          kernel + "/" + std::string(implementation.name) + "/" + std::string(footprint.name);
      const std::size_t bytes = footprint.bytes;
      benchmark::RegisterBenchmark(name.c_str(), [body, &implementation, bytes](benchmark::State& state) {
        body(state, implementation, bytes);
      });
    }
  }
}

/// Sets the rate at which a benchmark read its data.
inline void count_bytes(benchmark::State& state, std::size_t bytes_per_iteration) {
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes_per_iteration) * state.iterations());
}

void register_row_kernels();
void register_reductions();
void register_prefix_bounds();
void register_multiply();
void register_wta();
void register_certified_costs();

}  // namespace topksoftmax::bench
