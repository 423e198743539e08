// SPDX-License-Identifier: Apache-2.0
#include "world.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace {

/// Random numbers that are the same with every standard library.
class Numbers {
 public:
  /// A multiple of 1/64 from -largest to largest.
  float next(float largest) {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    const auto high = static_cast<double>(state_ >> 40) / static_cast<double>(std::uint64_t{1} << 24);
    return static_cast<float>(std::round((2.0 * high - 1.0) * largest * 64.0) / 64.0);
  }

  std::vector<float> next(std::size_t count, float largest) {
    std::vector<float> some(count);
    for (float& one : some) one = next(largest);
    return some;
  }

 private:
  std::uint64_t state_ = 1;
};

/// Rows [count×kDim], row i around the center of topic i mod kTopics.
std::vector<float> around(const std::vector<float>& centers, std::size_t count, float noise,
                          Numbers& numbers) {
  std::vector<float> rows = numbers.next(count * World::kDim, noise);
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i] += centers[i / World::kDim % World::kTopics * World::kDim + i % World::kDim];
  return rows;
}

std::vector<double> logits(const World& world, std::span<const float> h) {
  std::vector<double> sums(world.biases.begin(), world.biases.end());
  for (std::size_t i = 0; i < world.weights.size(); ++i)
    sums[i / World::kDim] += static_cast<double>(world.weights[i]) * static_cast<double>(h[i % World::kDim]);
  return sums;
}

}  // namespace

World::World() {
  Numbers numbers;
  const std::vector<float> centers = numbers.next(kTopics * kDim, 1.0F);
  weights = around(centers, kVocab, 0.5F, numbers);
  biases = numbers.next(kVocab, 0.5F);
  learned = around(centers, kLearned, 0.25F, numbers);
  while (truths.size() < kAsked) {
    const std::vector<float> some = around(centers, kTopics, 0.25F, numbers);
    const std::span h = std::span(some).subspan(truths.size() % kTopics * kDim, kDim);
    const std::vector<double> sums = logits(*this, h);
    std::vector<std::int32_t> ids(kVocab);
    std::iota(ids.begin(), ids.end(), 0);
    const auto sum = [&sums](std::int32_t id) { return sums[static_cast<std::size_t>(id)]; };
    std::sort(ids.begin(), ids.end(), [&](std::int32_t a, std::int32_t b) { return sum(a) > sum(b); });
    bool apart = true;
    for (std::size_t i = 0; i < kBest; ++i) apart = apart && sum(ids[i]) - sum(ids[i + 1]) >= 1.0 / 16.0;
    if (!apart) continue;
    asked.insert(asked.end(), h.begin(), h.end());
    double z = 0.0;
    for (const double one : sums) z += std::exp(one - sum(ids[0]));
    truths.push_back({.best = {ids.begin(), ids.begin() + kBest}, .log_z = sum(ids[0]) + std::log(z)});
  }
}
