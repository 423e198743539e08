// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/registration.hpp"
#include "topksoftmax/kernels/panels.hpp"

namespace topksoftmax::bench {
namespace {

constexpr std::size_t kVectors = 64;

/// Vectors by a square matrix of about so many bytes.
void multiply(benchmark::State& state, const kernels::detail::Implementation& kernel, std::size_t bytes) {
  constexpr std::size_t kWidth = kernels::Panels::kWidth;
  const std::size_t entries = bytes / sizeof(float);
  const auto side = static_cast<std::size_t>(std::sqrt(static_cast<double>(entries)));
  const std::size_t dim = std::max(side / kWidth * kWidth, kWidth);
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  const auto random_values = [&](std::size_t count) {
    std::vector<float> values(count);
    std::generate(values.begin(), values.end(), [&] { return normal(engine); });
    return values;
  };
  const std::vector<float> matrix = random_values(dim * dim);
  const std::vector<float> x = random_values(kVectors * dim);
  std::vector<float> products(kVectors * dim);
  for ([[maybe_unused]] auto iteration : state) {
    kernel.multiply(x.data(), dim, kVectors, {matrix.data(), dim, dim}, products.data(), dim);
    benchmark::ClobberMemory();
  }
  const auto multiply_adds = static_cast<std::int64_t>(kVectors * dim * dim);
  state.SetItemsProcessed(multiply_adds * state.iterations());
}

}  // namespace

void register_multiply() {
  register_kernel("multiply", multiply);
}

}  // namespace topksoftmax::bench
