// SPDX-License-Identifier: Apache-2.0
//
// What the steps of a query of Certified cost: certified/building/costs.hpp says what its constants are of
// these figures, in units of a byte of a prefix.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/registration.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/kernels/prefix_boxes.hpp"
#include "topksoftmax/kernels/prefix_tails.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/workspace.hpp"

namespace topksoftmax::bench {
namespace {

/// Rows of a layer whose tails and weights stay in the third cache, and of one whose weights do not.
constexpr std::size_t kFewRows = 10240;
constexpr std::size_t kManyRows = 32768;
constexpr std::size_t kBlockRows = kernels::PrefixBlocks::kRows;

/// Bytes from a seed, at a cache line.
std::byte* random_bytes(ScratchBuffer& storage, std::size_t bytes, unsigned seed) {
  auto* const data = storage.get<std::byte>(bytes);
  std::mt19937 engine(seed);
  std::generate_n(data, bytes, [&engine] { return static_cast<std::byte>(engine()); });
  return data;
}

/// Few of all rows, others every time, as what survives lies about: each time of so many equal parts.
class Scattered {
 public:
  Scattered(std::size_t rows, std::size_t parts) : ids_(rows), size_(rows / parts) {
    std::iota(ids_.begin(), ids_.end(), TokenId{0});
    std::shuffle(ids_.begin(), ids_.end(), std::mt19937(1));
  }

  std::size_t size() const { return size_; }
  const TokenId* next() {
    at_ = (at_ + 2 * size_ <= ids_.size()) ? at_ + size_ : 0;
    return ids_.data() + at_;
  }

 private:
  std::vector<TokenId> ids_;
  std::size_t size_;
  std::size_t at_ = 0;
};

/// Prefixes of so many rows, with biases of 0 and small scales and radii.
class Prefixes {
 public:
  Prefixes(std::size_t rows, std::size_t width) {
    blocks_.rows = rows;
    blocks_.width = width;
    std::byte* const data = random_bytes(storage_, blocks_.bytes(), 1);
    blocks_.data = data;
    constexpr std::uint16_t kSmall = 0x3c00;  // 1/128 as bfloat16
    for (std::size_t block = 0; block < blocks_.blocks(); ++block) {
      std::byte* const header = data + block * blocks_.block_bytes();
      std::memset(header, 0, kBlockRows * sizeof(float));
      for (std::size_t i = kBlockRows * sizeof(float); i < kernels::PrefixBlocks::kHeader;
           i += sizeof(kSmall)) {
        std::memcpy(header + i, &kSmall, sizeof(kSmall));
      }
    }
  }

  const kernels::PrefixBlocks& blocks() const { return blocks_; }

 private:
  ScratchBuffer storage_;
  kernels::PrefixBlocks blocks_;
};

/// A context's prefix, and room for the bounds of so many rows.
struct Asked {
  Asked(std::size_t width, std::size_t rows) : n(width, 1234), estimates(rows), radii(rows), ids(rows + 64) {}

  kernels::PrefixContext prefix() const { return {.n = n.data(), .scale = 1e-3F, .radius = 1.0F}; }

  std::vector<std::int16_t> n;
  std::vector<float> estimates;
  std::vector<float> radii;
  std::vector<TokenId> ids;
};

/// Reports the time that each of the `count` things takes which an iteration does.
void count_each(benchmark::State& state, const char* thing, std::size_t count) {
  state.counters[thing] =
      benchmark::Counter(static_cast<double>(count),
                         benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

/// What the first scan makes of all rows: bounds, the sum of those below a threshold, the others' ids.
void scan_prefixes(benchmark::State& state, std::size_t width) {
  const Prefixes prefixes(kManyRows, width);
  Asked asked(width, kManyRows);
  for ([[maybe_unused]] auto iteration : state) {
    kernels::prefix_bounds(prefixes.blocks(), asked.prefix(), asked.estimates.data(), asked.radii.data());
    benchmark::DoNotOptimize(
        kernels::partition(asked.estimates.data(), asked.radii.data(), kManyRows, 1e30F, asked.ids.data()));
  }
  count_each(state, "row", kManyRows);
}

/// The same of the rows of about every fourth block, as boxes pick them.
void open_blocks(benchmark::State& state, std::size_t width) {
  const Prefixes prefixes(kManyRows, width);
  std::vector<TokenId> opened;
  std::mt19937 engine(1);
  for (std::size_t block = engine() % 8; block < prefixes.blocks().blocks(); block += 1 + engine() % 7) {
    opened.push_back(static_cast<TokenId>(block));
  }
  const std::size_t rows = opened.size() * kBlockRows;
  Asked asked(width, rows);
  for ([[maybe_unused]] auto iteration : state) {
    kernels::prefix_bounds_gathered(prefixes.blocks(), opened.data(), opened.size(), asked.prefix(),
                                    asked.estimates.data(), asked.radii.data());
    benchmark::DoNotOptimize(
        kernels::partition(asked.estimates.data(), asked.radii.data(), rows, 1e30F, asked.ids.data()));
  }
  count_each(state, "row", rows);
}

/// The bounds of all boxes.
void bound_boxes(benchmark::State& state, std::size_t width) {
  const Prefixes centres(kManyRows / kBlockRows, width);
  const Prefixes spreads(kManyRows / kBlockRows, width);
  const std::size_t count = centres.blocks().rows;
  Asked asked(width, count);
  for ([[maybe_unused]] auto iteration : state) {
    kernels::box_bounds({centres.blocks(), spreads.blocks()}, asked.prefix(), asked.n.data(),
                        asked.estimates.data(), asked.radii.data());
    benchmark::DoNotOptimize(
        kernels::partition(asked.estimates.data(), asked.radii.data(), count, 1e30F, asked.ids.data()));
  }
  count_each(state, "box", count);
}

/// The bounds of scattered rows by tails of so many cache lines.
void ask_tails(benchmark::State& state, std::size_t count, std::size_t lines) {
  kernels::PrefixTails tails;
  tails.rows = count;
  tails.width = kernels::PrefixTails::width_of(lines);
  ScratchBuffer storage;
  std::byte* const data = random_bytes(storage, tails.bytes(), 2);
  for (std::size_t row = 0; row < count; ++row) {
    tails.put_footer(data + row * tails.row_bytes(), {.scale = 1e-3F, .radius = 1.0F});
  }
  tails.data = data;
  ScratchBuffer context;
  auto* const n = context.get<std::int16_t>(tails.row_bytes());
  std::fill_n(n, tails.row_bytes(), std::int16_t{0});
  Scattered ids(count, 64);
  Asked asked(0, ids.size());
  for ([[maybe_unused]] auto iteration : state) {
    kernels::tail_bounds(tails, {.n = n, .scale = 1.0F, .radius = 1.0F}, ids.next(), ids.size(),
                         asked.estimates.data(), asked.radii.data());
    benchmark::ClobberMemory();
  }
  count_each(state, "row", ids.size());
}

/// The logits of scattered rows of so many weights.
void score_rows(benchmark::State& state, std::size_t count, WeightType type, std::size_t dim) {
  kernels::Rows rows;
  rows.type = type;
  rows.count = count;
  rows.dim = rows.stride = dim;
  ScratchBuffer storage;
  auto* const weights = storage.get<std::byte>(rows.bytes(rows.count));
  std::memset(weights, 0, rows.bytes(rows.count));
  rows.data = weights;
  const std::vector<float> h(dim, 1.0F);
  Scattered ids(count, 256);
  std::vector<float> logits(ids.size());
  for ([[maybe_unused]] auto iteration : state) {
    kernels::scan_gathered(rows, ids.next(), ids.size(), h.data(), logits.data());
    benchmark::ClobberMemory();
  }
  count_each(state, "byte", rows.bytes(ids.size()));
}

}  // namespace

void register_certified_costs() {
  for (const std::size_t width : {8U, 32U, 64U, 128U}) {
    const std::string suffix = "/width:" + std::to_string(width);
    benchmark::RegisterBenchmark(("certified/prefix" + suffix).c_str(), scan_prefixes, width);
    benchmark::RegisterBenchmark(("certified/opened" + suffix).c_str(), open_blocks, width);
    benchmark::RegisterBenchmark(("certified/box" + suffix).c_str(), bound_boxes, width);
  }
  for (const std::size_t rows : {kFewRows, kManyRows}) {
    const std::string suffix = "/rows:" + std::to_string(rows);
    for (const std::size_t lines : {1U, 2U, 3U, 4U, 8U, 16U}) {
      benchmark::RegisterBenchmark(("certified/tail/lines:" + std::to_string(lines) + suffix).c_str(),
                                   ask_tails, rows, lines);
    }
    for (const std::size_t dim : {200U, 256U, 512U}) {
      const std::string size = ":" + std::to_string(dim) + suffix;
      benchmark::RegisterBenchmark(("certified/scored/float32" + size).c_str(), score_rows, rows,
                                   WeightType::float32, dim);
      benchmark::RegisterBenchmark(("certified/scored/bfloat16" + size).c_str(), score_rows, rows,
                                   WeightType::bfloat16, dim);
    }
  }
}

}  // namespace topksoftmax::bench
