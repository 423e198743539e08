// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "fuzz/targets.hpp"

namespace topksoftmax::fuzz {

/// Turns bytes into decisions; when they are used up, every decision is the first.
class Choices {
 public:
  explicit Choices(Bytes bytes) : bytes_(bytes) {}

  bool left() const { return !bytes_.empty(); }

  std::uint8_t byte() {
    if (bytes_.empty()) return 0;
    const std::uint8_t first = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return first;
  }

  /// The place of one of `count` ≤ 32 things: seeds go on to mean the same when more are added behind them.
  std::size_t place(std::size_t count) { return byte() % 32 % count; }

  bool yes() { return byte() % 2 != 0; }

  /// A number from `low` to `high`.
  std::size_t between(std::size_t low, std::size_t high) {
    const std::size_t count = high - low + 1;
    std::size_t number = byte();
    if (count > 256) number = number * 256 + byte();
    return low + number % count;
  }

  /// A weight: most often of a coarse grid, so that there are ties, seldom at the edge of what floats are.
  float weight() {
    constexpr std::array<float, 12> odd = {0.0F,  -0.0F, 1e-42F, -1e-42F, 1e-30F, 1e-10F,
                                           1e10F, 1e18F, -1e18F, 1e30F,   3e38F,  -3e38F};
    const std::uint8_t choice = byte();
    if (choice < odd.size()) return odd[choice];
    return static_cast<float>(choice - 128) / 32.0F;
  }

  /// The same, or now and then NaN.
  float value() {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    if (byte() % 64 != 63) return weight();
    constexpr std::array<float, 3> bad = {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity};
    return bad[between(0, bad.size() - 1)];
  }

 private:
  Bytes bytes_;
};

}  // namespace topksoftmax::fuzz
