// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "kernels/registration.hpp"

namespace topksoftmax::bench {
namespace {

/// d of the kernels that are not measured for several.
constexpr std::size_t kDim = 256;
constexpr std::size_t kBatch = 16;
constexpr std::size_t kTopK = 5;

/// Rows of one stored type in about so many bytes, and contexts to multiply them by.
struct Data {
  Data(WeightType type, std::size_t bytes, std::size_t dim = kDim) {
    rows.type = type;
    rows.dim = rows.stride = dim;
    rows.count = bytes / rows.row_bytes();
    std::mt19937 engine(1);
    weights.resize(rows.count * rows.row_bytes());
    if (type == WeightType::float32) {
      auto* const values = reinterpret_cast<float*>(weights.data());
      std::generate_n(values, rows.count * dim, [&] { return normal(engine); });
    } else if (type == WeightType::int8) {
      for (std::uint8_t& weight : weights) weight = static_cast<std::uint8_t>(engine());
      scales.assign(rows.count, 0.01F);
      rows.scales = scales.data();
    } else {
      // Bits of small numbers in both 16-bit formats, and as factors of blocks.
      auto* const values = reinterpret_cast<std::uint16_t*>(weights.data());
      std::generate_n(values, weights.size() / 2,
                      [&] { return static_cast<std::uint16_t>(0x3000U | (engine() & 0x8fffU)); });
    }
    rows.data = weights.data();
    bias.assign(rows.count, 0.5F);
    rows.bias = bias.data();
    contexts.resize(kBatch * dim);
    std::generate(contexts.begin(), contexts.end(), [&] { return normal(engine); });
    ids.resize(rows.count);
    std::iota(ids.begin(), ids.end(), 0);
    std::shuffle(ids.begin(), ids.end(), engine);
    logits.resize(rows.count);
  }

  static float normal(std::mt19937& engine) { return std::normal_distribution<float>()(engine); }

  kernels::Rows rows;
  std::vector<std::uint8_t> weights;
  std::vector<float> scales;
  std::vector<float> bias;
  std::vector<float> contexts;
  std::vector<TokenId> ids;
  std::vector<float> logits;
};

/// Sets the rate at which a batch of kBatch contexts was multiplied.
void count_products(benchmark::State& state, const Data& data) {
  state.counters["GFLOPS"] =
      benchmark::Counter(2.0 * static_cast<double>(kBatch * data.rows.count * kDim) * 1e-9,
                         benchmark::Counter::kIsIterationInvariantRate);
}

void scan(benchmark::State& state, const kernels::detail::Implementation& kernel, WeightType type,
          std::size_t dim, std::size_t bytes) {
  Data data(type, bytes, dim);
  for ([[maybe_unused]] auto iteration : state) {
    kernel.scan(data.rows, 0, data.rows.count, data.contexts.data(), data.logits.data());
    benchmark::ClobberMemory();
  }
  count_bytes(state, data.rows.bytes(data.rows.count));
}

void scan_gathered(benchmark::State& state, const kernels::detail::Implementation& kernel,
                   std::size_t bytes) {
  Data data(WeightType::float32, bytes);
  for ([[maybe_unused]] auto iteration : state) {
    kernel.scan_gathered(data.rows, data.ids.data(), data.rows.count, data.contexts.data(),
                         data.logits.data());
    benchmark::ClobberMemory();
  }
  count_bytes(state, data.rows.bytes(data.rows.count));
}

void scan_gathered_batch(benchmark::State& state, const kernels::detail::Implementation& kernel,
                         std::size_t bytes) {
  Data data(WeightType::float32, bytes);
  std::vector<float> logits(kBatch * data.rows.count);
  for ([[maybe_unused]] auto iteration : state) {
    kernel.scan_gathered_batch(data.rows, data.ids.data(), data.rows.count, data.contexts.data(), kDim,
                               kBatch, logits.data());
    benchmark::ClobberMemory();
  }
  count_bytes(state, data.rows.bytes(data.rows.count));
  count_products(state, data);
}

void argmax(benchmark::State& state, const kernels::detail::Implementation& kernel, std::size_t bytes) {
  const Data data(WeightType::float32, bytes);
  for ([[maybe_unused]] auto iteration : state) {
    benchmark::DoNotOptimize(kernel.argmax(data.rows, data.contexts.data()));
  }
  count_bytes(state, data.rows.bytes(data.rows.count));
}

void fused_scan(benchmark::State& state, const kernels::detail::Implementation& kernel, std::size_t bytes) {
  const Data data(WeightType::float32, bytes);
  std::vector<ScoredToken> best(kTopK);
  for ([[maybe_unused]] auto iteration : state) {
    kernels::TopKHeap heap(best.data(), kTopK);
    kernels::LogSumExp sum;
    kernel.fused_scan(data.rows, data.contexts.data(), {}, heap, &sum);
    benchmark::DoNotOptimize(sum);
  }
  count_bytes(state, data.rows.bytes(data.rows.count));
}

void fused_scan_batch(benchmark::State& state, const kernels::detail::Implementation& kernel,
                      std::size_t bytes) {
  const Data data(WeightType::float32, bytes);
  std::vector<ScoredToken> best(kBatch * kTopK);
  const std::vector<kernels::LogitEdits> none(kBatch);
  for ([[maybe_unused]] auto iteration : state) {
    std::vector<kernels::TopKHeap> heaps;
    for (std::size_t q = 0; q < kBatch; ++q) heaps.emplace_back(best.data() + q * kTopK, kTopK);
    std::vector<kernels::LogSumExp> sums(kBatch);
    kernel.fused_scan_batch(data.rows, data.contexts.data(), kDim, kBatch, none.data(), heaps.data(),
                            sums.data());
    benchmark::DoNotOptimize(sums.data());
  }
  count_bytes(state, data.rows.bytes(data.rows.count));
  count_products(state, data);
}

}  // namespace

void register_row_kernels() {
  using kernels::detail::Implementation;
  for (const WeightType type : {WeightType::float32, WeightType::float16, WeightType::bfloat16,
                                WeightType::int8, WeightType::q8_0, WeightType::q6_k, WeightType::q4_k}) {
    for (const std::size_t dim : {200U, 256U, 576U, 1024U, 2048U}) {
      if (dim % weight_block(type).weights != 0) continue;
      const std::string name = "scan_" + std::string(weight_type_name(type)) + "/d:" + std::to_string(dim);
      register_kernel(name, [type, dim](benchmark::State& state, const Implementation& kernel,
                                        std::size_t bytes) { scan(state, kernel, type, dim, bytes); });
    }
  }
  register_kernel("scan_gathered", scan_gathered);
  register_kernel("scan_gathered_batch_16", scan_gathered_batch);
  register_kernel("argmax", argmax);
  register_kernel("fused_scan", fused_scan);
  register_kernel("fused_scan_batch_16", fused_scan_batch);
}

}  // namespace topksoftmax::bench
