// SPDX-License-Identifier: Apache-2.0
//
// No kernel touches what lies behind its arguments, and edges of every size are computed as the middle is:
// everything that kernels read and write ends at a page that no one may touch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "support/guarded.hpp"
#include "support/guarded_rows.hpp"
#include "topksoftmax/kernels/implementation.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/panels.hpp"

namespace topksoftmax {
namespace {

using kernels::LogitEdits;
using kernels::LogSumExp;
using kernels::PrefixBlocks;
using kernels::PrefixTails;
using kernels::Rows;
using kernels::TopKHeap;
using kernels::detail::Implementation;
using testing::Guarded;
using testing::GuardedRows;
using testing::kEveryWeightType;

class GuardedKernels : public ::testing::TestWithParam<Implementation> {
 protected:
  const Implementation& kernel() const { return GetParam(); }
};

Guarded<float> random_floats(std::size_t count, unsigned seed, float scale = 1.0F) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(engine);
  return Guarded<float>(std::span<const float>(values));
}

/// Every d from 1 to 130 and the awkward ones above, in whole blocks of the type.
std::vector<std::size_t> dims(WeightType type) {
  const std::size_t block = weight_block(type).weights;
  std::vector<std::size_t> all;
  for (std::size_t d = 1; d <= 130; ++d) all.push_back(d);
  for (const std::size_t d : {160U, 192U, 224U, 255U, 256U, 257U, 288U, 512U, 1000U, 1023U, 1024U, 4096U})
    all.push_back(d);
  std::erase_if(all, [block](std::size_t d) { return d % block != 0; });
  return all;
}

std::vector<std::size_t> strides(WeightType type, std::size_t dim) {
  const std::size_t block = weight_block(type).weights;
  return {dim, dim + block, dim + 3 * block};
}

/// The k best of some logits by the plainest sort there is: larger first, then the lower id.
std::vector<std::size_t> ranking(const Guarded<float>& logits) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  return order;
}

void expect_best(TopKHeap& heap, const Guarded<float>& logits, std::size_t k) {
  const std::vector<std::size_t> order = ranking(logits);
  const std::span<const ScoredToken> best = heap.sort();
  ASSERT_EQ(best.size(), k);
  for (std::size_t i = 0; i < k; ++i) {
    ASSERT_EQ(static_cast<std::size_t>(best[i].id), order[i]);
    ASSERT_EQ(best[i].logit, logits[order[i]]);
  }
}

double log_sum_exp(const Guarded<float>& logits) {
  double sum = 0.0;
  const auto max = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - max);
  return max + std::log(sum);
}

TEST_P(GuardedKernels, RowsOfEveryTypeAndDimension) {
  for (const WeightType type : kEveryWeightType) {
    for (const std::size_t dim : dims(type)) {
      for (const std::size_t stride : strides(type, dim)) {
        const std::size_t count = dim % 16 == 1 ? 67 : 5;
        const GuardedRows made(type, count, dim, stride, static_cast<unsigned>(dim));
        const Rows& rows = made.rows();
        const Guarded<float> h = random_floats(dim, 7);
        Guarded<float> logits(count);
        kernel().scan(rows, 0, count, h.data(), logits.data());
        for (std::size_t i = 0; i < count; ++i) {
          const auto [value, tolerance] = made.logit(i, h.data());
          ASSERT_NEAR(logits[i], value, tolerance)
              << weight_type_name(type) << ", d = " << dim << ", stride " << stride << ", row " << i;
        }
        // The last rows, as many as a tile and its parts take.
        for (std::size_t part = 1; part <= std::min<std::size_t>(count, 17); ++part) {
          Guarded<float> last(part);
          kernel().scan(rows, count - part, part, h.data(), last.data());
          for (std::size_t i = 0; i < part; ++i) ASSERT_EQ(last[i], logits[count - part + i]) << part;
        }
        Guarded<TokenId> ids(count + 2);
        for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>((count + 2 - i) % count);
        Guarded<float> gathered(ids.size());
        kernel().scan_gathered(rows, ids.data(), ids.size(), h.data(), gathered.data());
        for (std::size_t i = 0; i < ids.size(); ++i) {
          ASSERT_EQ(gathered[i], logits[static_cast<std::size_t>(ids[i])]);
        }
        ASSERT_EQ(kernel().argmax(rows, h.data()), ranking(logits)[0]);
        for (const std::size_t k : {std::size_t{1}, count / 2, count}) {
          Guarded<ScoredToken> storage(k);
          TopKHeap heap(storage.data(), k);
          LogSumExp sum;
          kernel().fused_scan(rows, h.data(), {}, heap, &sum);
          expect_best(heap, logits, k);
          ASSERT_NEAR(sum.value(), log_sum_exp(logits), 1e-5);
        }
      }
    }
  }
}

TEST_P(GuardedKernels, BatchesOfEverySize) {
  for (const WeightType type : kEveryWeightType) {
    const std::size_t block = weight_block(type).weights;
    for (const std::size_t dim : {std::size_t{1}, std::size_t{17}, std::size_t{64}, std::size_t{257}}) {
      const std::size_t d = (dim + block - 1) / block * block;
      constexpr std::size_t kCount = 19;
      const GuardedRows made(type, kCount, d, d + block, static_cast<unsigned>(dim));
      const Rows& rows = made.rows();
      for (std::size_t batch = 1; batch <= 130; ++batch) {
        // All sizes where a context is cheap, and those around the tiles elsewhere.
        if (dim > 1 && batch % 8 > 1 && batch % 9 != 0 && batch > 32) continue;
        const std::size_t stride = d + batch % 3;
        const Guarded<float> contexts = random_floats((batch - 1) * stride + d, static_cast<unsigned>(batch));
        Guarded<float> scanned(batch * kCount);
        kernel().scan_batch(rows, contexts.data(), stride, batch, scanned.data(), rows.count);
        const Guarded<TokenId> ids = {18, 0, 0, 7, 16, 17, 3};
        Guarded<float> gathered(batch * ids.size());
        kernel().scan_gathered_batch(rows, ids.data(), ids.size(), contexts.data(), stride, batch,
                                     gathered.data());
        const std::size_t k = 1 + batch % kCount;
        Guarded<ScoredToken> storage(batch * k);
        std::vector<TopKHeap> heaps;
        for (std::size_t q = 0; q < batch; ++q) heaps.emplace_back(storage.data() + q * k, k);
        std::vector<LogSumExp> sums(batch);
        const std::vector<LogitEdits> none(batch);
        kernel().fused_scan_batch(rows, contexts.data(), stride, batch, none.data(), heaps.data(),
                                  sums.data());
        for (std::size_t q = 0; q < batch; ++q) {
          const float* const h = contexts.data() + q * stride;
          Guarded<float> logits(kCount);
          kernel().scan(rows, 0, kCount, h, logits.data());
          for (std::size_t i = 0; i < kCount; ++i) {
            ASSERT_EQ(scanned[q * kCount + i], logits[i])
                << weight_type_name(type) << ", d = " << d << ", context " << q << " of " << batch;
          }
          for (std::size_t i = 0; i < ids.size(); ++i) {
            ASSERT_EQ(gathered[q * ids.size() + i], logits[static_cast<std::size_t>(ids[i])]);
          }
          expect_best(heaps[q], logits, k);
          ASSERT_NEAR(sums[q].value(), log_sum_exp(logits), 1e-5);
          const auto [value, tolerance] = made.logit(q % kCount, h);
          ASSERT_NEAR(logits[q % kCount], value, tolerance);
        }
      }
    }
  }
}

TEST_P(GuardedKernels, EveryK) {
  constexpr std::size_t kCount = 131;
  const GuardedRows made(WeightType::float32, kCount, 5, 5, 3);
  const Guarded<float> h = random_floats(5, 7);
  Guarded<float> logits(kCount);
  kernel().scan(made.rows(), 0, kCount, h.data(), logits.data());
  for (std::size_t i = 0; i < kCount; i += 3) logits[i] = logits[0];  // ties, for what is given logits
  Guarded<float> own(kCount);
  kernel().scan(made.rows(), 0, kCount, h.data(), own.data());
  for (std::size_t k = 1; k <= kCount; ++k) {
    Guarded<ScoredToken> storage(k);
    TopKHeap fused(storage.data(), k);
    kernel().fused_scan(made.rows(), h.data(), {}, fused, nullptr);
    expect_best(fused, own, k);
    TopKHeap selected(storage.data(), k);
    kernel().select(logits.data(), nullptr, kCount, selected);
    expect_best(selected, logits, k);
    TopKHeap absorbed(storage.data(), k);
    LogSumExp sum;
    kernel().fused_select(logits.data(), nullptr, kCount, absorbed, &sum);
    expect_best(absorbed, logits, k);
    ASSERT_NEAR(sum.value(), log_sum_exp(logits), 1e-5);
  }
  for (std::size_t count = 1; count <= kernels::kFew; ++count) {
    Guarded<float> some(count);
    std::copy_n(logits.begin(), count, some.begin());
    Guarded<TokenId> ids(count);
    std::iota(ids.begin(), ids.end(), TokenId{0});
    const std::vector<std::size_t> order = ranking(some);
    for (std::size_t k = 1; k <= count; ++k) {
      ASSERT_EQ(kernel().kth_of_few(some.data(), count, k), some[order[k - 1]]);
      Guarded<ScoredToken> best(k);
      ASSERT_EQ(kernel().rank_best(some.data(), ids.data(), count, k, best.data()), k);
      for (std::size_t i = 0; i < k; ++i) {
        ASSERT_EQ(static_cast<std::size_t>(best[i].id), order[i]) << count << " values, k = " << k;
      }
    }
  }
}

TEST_P(GuardedKernels, ReductionsOfEveryLength) {
  for (std::size_t count = 1; count <= 300; ++count) {
    const Guarded<float> x = random_floats(count, static_cast<unsigned>(count), 3.0F);
    const float largest = *std::max_element(x.begin(), x.end());
    ASSERT_EQ(kernel().max(x.data(), count), largest);
    double sum = 0.0;
    double square = 0.0;
    for (const float value : x) {
      sum += std::exp(static_cast<double>(value) - static_cast<double>(largest));
      square += static_cast<double>(value) * static_cast<double>(value);
    }
    ASSERT_NEAR(kernel().sum_exp(x.data(), count, largest), sum, 1e-5 * sum) << count;
    LogSumExp added;
    kernel().add_exp(x.data(), count, added);
    ASSERT_NEAR(added.value(), static_cast<double>(largest) + std::log(sum), 1e-5);
    Guarded<float> exponentials(count);
    kernel().exp(x.data(), count, 1.0F, exponentials.data());
    for (std::size_t i = 0; i < count; ++i) {
      const double expected = std::exp(static_cast<double>(x[i]) - 1.0);
      ASSERT_NEAR(exponentials[i], expected, 1e-6 * expected);
    }
    const double error = 0x1p-24 * static_cast<double>(count + 3);
    ASSERT_NEAR(kernel().squared_length(x.data(), count), square, error * square) << count;
    const Guarded<float> y = random_floats(count, static_cast<unsigned>(count) + 1000, 3.0F);
    double distance = 0.0;
    for (std::size_t i = 0; i < count; ++i) {
      distance += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2);
    }
    ASSERT_NEAR(kernel().squared_distance(x.data(), y.data(), count), distance, error * distance);
  }
}

TEST_P(GuardedKernels, ContextsOfEveryLengthAreRounded) {
  for (std::size_t count = 0; count <= 130; ++count) {
    const Guarded<float> x = random_floats(count, static_cast<unsigned>(count));
    float largest = 0.0F;
    for (const float value : x) largest = std::max(largest, std::abs(value));
    ASSERT_EQ(kernel().largest_magnitude(x.data(), count), largest) << count;
    Guarded<std::int16_t> n(count);
    kernel().round_to_shorts(x.data(), count, 1000.0F, 1500.0F, n.data());
    for (std::size_t j = 0; j < count; ++j) {
      const float steps = x[j] * 1000.0F;  // rounded, as the kernel rounds it
      ASSERT_EQ(n[j], std::lround(std::clamp(static_cast<double>(steps), -1500.0, 1500.0))) << count;
    }
  }
}

TEST_P(GuardedKernels, BoundsAreDividedAtEveryLength) {
  for (std::size_t count = 1; count <= 300; ++count) {
    const Guarded<float> estimates = random_floats(count, static_cast<unsigned>(count), 3.0F);
    Guarded<float> radii = random_floats(count, static_cast<unsigned>(count) + 1, 0.5F);
    for (float& radius : radii) radius = std::abs(radius);
    // One of the upper bounds itself: what reaches the threshold exactly is kept.
    const float threshold = estimates[count / 2] + radii[count / 2];
    std::vector<TokenId> expected;
    double others = 0.0;
    for (std::size_t i = 0; i < count; ++i) {
      const float high = estimates[i] + radii[i];
      if (high >= threshold) {
        expected.push_back(static_cast<TokenId>(i));
      } else {
        others += std::exp(static_cast<double>(estimates[i]) + static_cast<double>(radii[i]) -
                           static_cast<double>(threshold));
      }
    }
    Guarded<TokenId> ids(count + kernels::kSlack);
    ASSERT_EQ(kernel().reaching(estimates.data(), radii.data(), count, threshold, ids.data()),
              expected.size());
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), ids.begin())) << count;
    std::fill(ids.begin(), ids.end(), TokenId{-1});
    const kernels::Partition parts =
        kernel().partition(estimates.data(), radii.data(), count, threshold, ids.data());
    ASSERT_EQ(parts.reaching, expected.size());
    ASSERT_TRUE(std::equal(expected.begin(), expected.end(), ids.begin())) << count;
    ASSERT_GE(parts.rest.high, others);
    ASSERT_LE(parts.rest.high, 1.09 * others + 1e-30);
    ASSERT_LE(parts.rest.low, others);
    const kernels::SumBounds all = kernel().sum_exp_bounds(estimates.data(), radii.data(), count, threshold);
    ASSERT_GE(all.high, others);
    const std::size_t wanted = 1 + count / 20;
    Guarded<float> maxima(kernels::maxima_room(count));
    const std::size_t found = kernel().promising(estimates.data(), count, wanted, maxima.data(), ids.data());
    if (found == 0) continue;  // too few values for so many maxima
    ASSERT_GE(found, wanted);
    ASSERT_LE(found, count);
    float least = std::numeric_limits<float>::infinity();
    for (const TokenId id : ids.first(found))
      least = std::min(least, estimates[static_cast<std::size_t>(id)]);
    ASSERT_EQ(static_cast<std::size_t>(
                  std::count_if(estimates.begin(), estimates.end(), [least](float x) { return x >= least; })),
              found);
  }
}

TEST_P(GuardedKernels, TransformsOfEveryLength) {
  constexpr LogitTransform kTransform = {.scale = 0.5F, .soft_cap = 4.0F};
  for (std::size_t count = 1; count <= 130; ++count) {
    const Guarded<float> products = random_floats(count, static_cast<unsigned>(count), 6.0F);
    Guarded<float> radii = random_floats(count, static_cast<unsigned>(count) + 1, 0.5F);
    for (float& radius : radii) radius = std::abs(radius);
    Guarded<float> logits = random_floats(count, static_cast<unsigned>(count), 6.0F);
    kernel().transform(kTransform, logits.data(), count);
    Guarded<float> estimates(count);
    Guarded<float> to_radii(count);
    kernel().transform_bounds(kTransform, products.data(), radii.data(), count, estimates.data(),
                              to_radii.data());
    for (std::size_t i = 0; i < count; ++i) {
      const auto product = static_cast<double>(products[i]);
      const auto radius = static_cast<double>(radii[i]);
      const auto logit = [](double z) { return 4.0 * std::tanh(0.125 * z); };
      ASSERT_NEAR(logits[i], logit(product), 4e-6);
      ASSERT_GE(static_cast<double>(estimates[i] + to_radii[i]), logit(product + radius));
      ASSERT_LE(static_cast<double>(estimates[i] + to_radii[i]), logit(product + radius) + 1e-4);
      ASSERT_LE(static_cast<double>(estimates[i] - to_radii[i]), logit(product - radius));
    }
  }
}

/// Rows of prefixes as 4·v + j, or of one of two values, behind a bias of v; of 1 … 130 of them.
TEST_P(GuardedKernels, PrefixesAndBoxesOfEveryWidth) {
  for (std::size_t width = 4; width <= 132; width += 4) {
    for (const std::size_t rows : {1U, 16U, 17U, 33U}) {
      PrefixBlocks blocks = {.rows = rows, .width = width};
      Guarded<std::byte> bytes(blocks.bytes());
      blocks.data = bytes.data();
      std::mt19937 engine(static_cast<unsigned>(width));
      std::vector<int> q;
      for (std::size_t v = 0; v < blocks.blocks() * 16; ++v) {
        std::byte* const block = bytes.data() + v / 16 * blocks.block_bytes();
        const auto bias = static_cast<float>(v);
        constexpr std::uint16_t kOne = 0x3f80;
        std::memcpy(block + 4 * (v % 16), &bias, 4);
        for (const std::size_t at : {64U, 96U}) std::memcpy(block + at + 2 * (v % 16), &kOne, 2);
        for (std::size_t j = 0; j < width; ++j) {
          q.push_back(static_cast<int>(engine() % 128));
          block[128 + j / 4 * 64 + v % 16 * 4 + j % 4] = static_cast<std::byte>(q.back() + 128);
        }
      }
      Guarded<std::int16_t> n(width);
      for (std::int16_t& x : n) x = static_cast<std::int16_t>(engine() % 201) - 100;
      Guarded<std::int16_t> magnitudes(width);
      std::transform(n.begin(), n.end(), magnitudes.begin(),
                     [](std::int16_t x) { return static_cast<std::int16_t>(std::abs(x)); });
      const std::size_t room = blocks.blocks() * 16;
      Guarded<float> estimates(room), radii(room), box_estimates(room), box_radii(room);
      const kernels::PrefixContext context = {n.data(), 1.0F, 2.0F, {}};
      kernel().prefix_bounds(blocks, context, estimates.data(), radii.data());
      Guarded<float> same_estimates(room), same_radii(room);
      const kernels::PrefixProducts twice[] = {{context, same_estimates.data(), same_radii.data()},
                                               {context, same_estimates.data(), same_radii.data()}};
      kernel().prefix_bounds_batch(blocks, twice, 2);
      ASSERT_TRUE(std::equal(estimates.begin(), estimates.end(), same_estimates.begin()));
      kernel().box_bounds({blocks, blocks}, context, magnitudes.data(), box_estimates.data(),
                          box_radii.data());
      for (std::size_t v = 0; v < rows; ++v) {
        double dot = 0.0;
        double reach = 0.0;
        for (std::size_t j = 0; j < width; ++j) {
          dot += q[v * width + j] * n[j];
          reach += q[v * width + j] * magnitudes[j];
        }
        const auto bias = static_cast<double>(v);
        ASSERT_EQ(static_cast<double>(estimates[v]), dot + bias) << width << " wide, row " << v;
        const double rounding = 0x1p-20 * std::abs(dot + bias);
        ASSERT_GE(static_cast<double>(radii[v]), (2.0 + rounding) * (1.0 - 1e-6));
        ASSERT_LE(static_cast<double>(radii[v]), (2.0 + rounding) * (1.0 + 1e-6));
        ASSERT_EQ(static_cast<double>(box_estimates[v]), dot + bias);
        const double box_rounding = 0x1p-20 * (std::abs(dot) + bias + reach);
        ASSERT_GE(static_cast<double>(box_radii[v]), (2.0 + reach + box_rounding) * (1.0 - 1e-6));
        ASSERT_LE(static_cast<double>(box_radii[v]), (2.0 + reach + box_rounding) * (1.0 + 1e-6));
      }
    }
  }
}

TEST_P(GuardedKernels, TailsOfEveryNumberOfLines) {
  for (const std::size_t width :
       {1U, 55U, 56U, 57U, 120U, 121U, 184U, 185U, 248U, 249U, 312U, 313U, 500U, 1000U}) {
    constexpr std::size_t kRows = 21;
    PrefixTails tails = {.data = nullptr, .rows = kRows, .width = width};
    Guarded<std::byte> bytes(tails.bytes());
    tails.data = bytes.data();
    std::mt19937 engine(static_cast<unsigned>(width));
    std::vector<int> q(kRows * width);
    for (std::size_t v = 0; v < kRows; ++v) {
      std::byte* const row = bytes.data() + v * tails.row_bytes();
      for (std::size_t j = 0; j < width; ++j) {
        q[v * width + j] = static_cast<int>(engine() % 255) - 127;
        row[j] = static_cast<std::byte>(q[v * width + j]);
      }
      tails.put_footer(row, {0.5F, 0.25F});
    }
    Guarded<std::int16_t> n(tails.row_bytes());
    for (std::size_t j = 0; j < width; ++j)
      n[j] = static_cast<std::int16_t>(static_cast<int>(engine() % 17) - 8);
    for (std::size_t count = 1; count <= 40; ++count) {
      Guarded<TokenId> ids(count);
      for (TokenId& id : ids) id = static_cast<TokenId>(engine() % kRows);
      ids[count - 1] = static_cast<TokenId>(kRows - 1);
      Guarded<float> estimates(count), radii(count);
      std::fill(estimates.begin(), estimates.end(), 3.0F);
      kernel().tail_bounds(tails, {n.data(), 1.0F, 2.0F}, ids.data(), count, estimates.data(), radii.data());
      for (std::size_t i = 0; i < count; ++i) {
        double dot = 0.0;
        for (std::size_t j = 0; j < width; ++j) {
          dot += q[static_cast<std::size_t>(ids[i]) * width + j] * static_cast<double>(n[j]);
        }
        ASSERT_EQ(static_cast<double>(estimates[i]), 3.0 + 0.5 * dot) << width << " wide, " << i;
        const double rounding = 0x1p-20 * (3.0 + std::abs(0.5 * dot));
        ASSERT_NEAR(static_cast<double>(radii[i]), 0.5 + rounding, 1e-6 * (0.5 + rounding));
      }
    }
  }
}

TEST_P(GuardedKernels, RowsAreCombinedAtEveryCount) {
  for (const WeightType type : {WeightType::float32, WeightType::float16, WeightType::bfloat16}) {
    for (const std::size_t dim : {16U, 32U, 48U, 256U}) {
      for (std::size_t count = 1; count <= 130; ++count) {
        if (dim > 16 && count % 16 > 1) continue;
        const GuardedRows made(type, count, dim, dim, static_cast<unsigned>(count));
        const Guarded<float> x = random_floats(count, 5);
        Guarded<float> sums(dim);
        kernel().combine_rows(made.rows(), x.data(), sums.data());
        for (std::size_t i = 0; i < dim; ++i) {
          double sum = 0.0;
          double magnitude = 0.0;
          for (std::size_t j = 0; j < count; ++j) {
            const double product = made.weights(j)[i] * static_cast<double>(x[j]);
            sum += product;
            magnitude += std::abs(product);
          }
          const auto roundings = static_cast<double>(kernels::combine_roundings(count));
          ASSERT_NEAR(sums[i], sum, 1.01 * roundings * 0x1p-24 * magnitude)
              << weight_type_name(type) << ", " << count << " rows of " << dim;
        }
      }
    }
  }
}

TEST_P(GuardedKernels, VectorsAreMultipliedAtEveryCount) {
  for (const std::size_t rows : {1U, 2U, 31U, 64U, 65U, 130U}) {
    for (const std::size_t columns : {32U, 96U}) {
      const Guarded<float> values = random_floats(rows * columns, static_cast<unsigned>(rows));
      const kernels::Panels m = {values.data(), rows, columns};
      for (std::size_t count = 1; count <= 9; ++count) {
        const Guarded<float> x = random_floats(count * rows, 5);
        Guarded<float> products(count * columns);
        kernel().multiply(x.data(), rows, count, m, products.data(), columns);
        Guarded<float> alone(columns);
        kernel().multiply(x.data() + (count - 1) * rows, rows, 1, m, alone.data(), columns);
        for (std::size_t i = 0; i < count * columns; ++i) {
          const std::size_t q = i / columns;
          const std::size_t column = i % columns;
          double sum = 0.0;
          double magnitude = 0.0;
          for (std::size_t j = 0; j < rows; ++j) {
            const double product = static_cast<double>(x[q * rows + j]) *
                                   static_cast<double>(values[(column / 32 * rows + j) * 32 + column % 32]);
            sum += product;
            magnitude += std::abs(product);
          }
          const auto roundings = static_cast<double>(kernels::combine_roundings(rows));
          ASSERT_NEAR(products[i], sum, 1.01 * roundings * 0x1p-24 * magnitude)
              << rows << " rows of " << columns << ", " << count << " vectors";
          if (q == count - 1) {
            ASSERT_EQ(products[i], alone[column]) << count << " vectors";
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, GuardedKernels,
    ::testing::ValuesIn(std::vector<Implementation>(kernels::detail::implementations().begin(),
                                                    kernels::detail::implementations().end())),
    [](const auto& kernel) { return std::string(kernel.param.name); });

}  // namespace
}  // namespace topksoftmax
