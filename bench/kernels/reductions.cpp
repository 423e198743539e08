// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/registration.hpp"
#include "topksoftmax/kernels/kernels.hpp"

namespace topksoftmax::bench {
namespace {

/// Values as a model's logits lie: most of them well below the few largest.
std::vector<float> logits(std::size_t bytes) {
  std::vector<float> values(bytes / sizeof(float));
  std::mt19937 engine(1);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  std::generate(values.begin(), values.end(), [&] { return normal(engine); });
  return values;
}

void select(benchmark::State& state, const kernels::detail::Implementation& kernel, std::size_t bytes) {
  const std::vector<float> values = logits(bytes);
  std::vector<ScoredToken> best(5);
  for ([[maybe_unused]] auto iteration : state) {
    kernels::TopKHeap heap(best.data(), best.size());
    kernel.select(values.data(), nullptr, values.size(), heap);
    benchmark::DoNotOptimize(best.data());
  }
  count_bytes(state, bytes);
}

void rank_best(benchmark::State& state, const kernels::detail::Implementation& kernel, std::size_t bytes) {
  const std::vector<float> values = logits(bytes / 2);
  std::vector<TokenId> ids(values.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<ScoredToken> best(5);
  for ([[maybe_unused]] auto iteration : state) {
    benchmark::DoNotOptimize(
        kernel.rank_best(values.data(), ids.data(), values.size(), best.size(), best.data()));
  }
  count_bytes(state, bytes);
}

void max(benchmark::State& state, const kernels::detail::Implementation& kernel, std::size_t bytes) {
  const std::vector<float> values = logits(bytes);
  for ([[maybe_unused]] auto iteration : state) {
    benchmark::DoNotOptimize(kernel.max(values.data(), values.size()));
  }
  count_bytes(state, bytes);
}

void sum(benchmark::State& state, const kernels::detail::Implementation& kernel, std::size_t bytes) {
  const std::vector<float> values = logits(bytes);
  for ([[maybe_unused]] auto iteration : state) {
    benchmark::DoNotOptimize(kernel.sum(values.data(), values.size()));
  }
  count_bytes(state, bytes);
}

void sum_exp(benchmark::State& state, const kernels::detail::Implementation& kernel, std::size_t bytes) {
  const std::vector<float> values = logits(bytes);
  for ([[maybe_unused]] auto iteration : state) {
    benchmark::DoNotOptimize(kernel.sum_exp(values.data(), values.size(), 15.0F));
  }
  count_bytes(state, bytes);
}

void reaching(benchmark::State& state, const kernels::detail::Implementation& kernel, std::size_t bytes) {
  const std::vector<float> estimates = logits(bytes / 2);
  const std::vector<float> radii(estimates.size(), 0.5F);
  std::vector<TokenId> ids(estimates.size() + kernels::kSlack);
  for ([[maybe_unused]] auto iteration : state) {
    benchmark::DoNotOptimize(
        kernel.reaching(estimates.data(), radii.data(), estimates.size(), 10.0F, ids.data()));
  }
  count_bytes(state, bytes);
}

void partition(benchmark::State& state, const kernels::detail::Implementation& kernel, std::size_t bytes) {
  const std::vector<float> estimates = logits(bytes / 2);
  const std::vector<float> radii(estimates.size(), 0.5F);
  std::vector<TokenId> ids(estimates.size() + kernels::kSlack);
  for ([[maybe_unused]] auto iteration : state) {
    benchmark::DoNotOptimize(
        kernel.partition(estimates.data(), radii.data(), estimates.size(), 10.0F, ids.data()));
  }
  count_bytes(state, bytes);
}

void promising(benchmark::State& state, const kernels::detail::Implementation& kernel, std::size_t bytes) {
  const std::vector<float> values = logits(bytes);
  std::vector<float> maxima(kernels::maxima_room(values.size()));
  std::vector<TokenId> ids(values.size() + kernels::kSlack);
  for ([[maybe_unused]] auto iteration : state) {
    benchmark::DoNotOptimize(kernel.promising(values.data(), values.size(), 11, maxima.data(), ids.data()));
  }
  count_bytes(state, bytes);
}

void sum_exp_bounds(benchmark::State& state, const kernels::detail::Implementation& kernel,
                    std::size_t bytes) {
  const std::vector<float> estimates = logits(bytes / 2);
  const std::vector<float> radii(estimates.size(), 0.5F);
  for ([[maybe_unused]] auto iteration : state) {
    benchmark::DoNotOptimize(kernel.sum_exp_bounds(estimates.data(), radii.data(), estimates.size(), 15.0F));
  }
  count_bytes(state, bytes);
}

}  // namespace

void register_reductions() {
  register_kernel("select", select);
  register_kernel("rank_best", rank_best);
  register_kernel("max", max);
  register_kernel("sum", sum);
  register_kernel("sum_exp", sum_exp);
  register_kernel("promising", promising);
  register_kernel("reaching", reaching);
  register_kernel("partition", partition);
  register_kernel("sum_exp_bounds", sum_exp_bounds);
}

}  // namespace topksoftmax::bench
