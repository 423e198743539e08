// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>

#include "topksoftmax/config.hpp"
#include "topksoftmax/numeric/split_mix.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Random numbers that a seed gives alike on every platform: the generator's bits are fixed by the standard,
/// which the standard library's distributions are not.
class RandomStream {
 public:
  /// The stream of this seed, at its beginning.
  explicit RandomStream(std::uint64_t seed = 0) : engine_(seed) {}

  /// The next 64 random bits.
  std::uint64_t bits() { return engine_(); }

  /// The next of 2⁵³ equally likely numbers in [0, 1).
  double uniform() { return detail::unit_interval(engine_()); }

 private:
  std::mt19937_64 engine_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE
