// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/registration.hpp"

namespace topksoftmax::bench {
namespace {

using kernels::WtaBands;

constexpr std::size_t kDim = 256;
constexpr std::size_t kUnits = 3;
constexpr std::size_t kCompared = 8;

/// Bands whose positions take about so many bytes, and vectors to hash.
struct Data {
  explicit Data(std::size_t bytes) {
    std::mt19937 engine(1);
    const std::size_t groups = bytes / (kUnits * kCompared * WtaBands::kGroup * sizeof(std::int32_t));
    positions.resize(groups * kUnits * kCompared * WtaBands::kGroup);
    std::generate(positions.begin(), positions.end(),
                  [&] { return static_cast<std::int32_t>(engine() % kDim); });
    bands = {positions.data(), groups, kUnits, kCompared};
    vectors.resize(WtaBands::kGroup * kDim);
    std::normal_distribution<float> normal;
    std::generate(vectors.begin(), vectors.end(), [&] { return normal(engine); });
    codes.resize(groups * WtaBands::kGroup * WtaBands::kGroup);
  }

  std::vector<std::int32_t> positions;
  WtaBands bands;
  std::vector<float> vectors;
  std::vector<std::uint32_t> codes;
};

void wta_codes(benchmark::State& state, const kernels::detail::Implementation& kernel, std::size_t bytes) {
  Data data(bytes);
  for ([[maybe_unused]] auto iteration : state) {
    kernel.wta_codes(data.bands, data.vectors.data(), data.codes.data());
    benchmark::ClobberMemory();
  }
  count_bytes(state, bytes);
}

void wta_codes_batch(benchmark::State& state, const kernels::detail::Implementation& kernel,
                     std::size_t bytes) {
  Data data(bytes);
  for ([[maybe_unused]] auto iteration : state) {
    kernel.wta_codes_batch(data.bands, data.vectors.data(), data.codes.data());
    benchmark::ClobberMemory();
  }
  count_bytes(state, bytes);
}

void mark_reaching(benchmark::State& state, const kernels::detail::Implementation& kernel,
                   std::size_t bytes) {
  std::mt19937 engine(1);
  std::vector<std::uint16_t> hits(bytes / sizeof(std::uint16_t));
  std::generate(hits.begin(), hits.end(), [&] { return static_cast<std::uint16_t>(engine() % 8); });
  std::vector<std::uint64_t> marks(hits.size() / 64);
  for ([[maybe_unused]] auto iteration : state) {
    benchmark::DoNotOptimize(kernel.mark_reaching(hits.data(), marks.size(), 5, marks.data()));
  }
  count_bytes(state, bytes);
}

}  // namespace

void register_wta() {
  register_kernel("wta_codes", wta_codes);
  register_kernel("wta_codes_batch_16", wta_codes_batch);
  register_kernel("mark_reaching", mark_reaching);
}

}  // namespace topksoftmax::bench
