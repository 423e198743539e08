// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What the estimate of log Z is linear in: leading coordinates of h', the products of the first of them with
/// each other, and the bounds of log Σ exp(logit) over the rows outside.
class OutsideFeatures {
 public:
  /// Leading coordinates whose products count, and which tell a context's region, at most.
  static constexpr std::size_t kMostPaired = 16;
  /// A lower bound that is so much below the upper one says nothing.
  static constexpr double kWidest = 40.0;

  OutsideFeatures() = default;
  /// Of so many coordinates.
  explicit OutsideFeatures(std::size_t coordinates) : coordinates_(coordinates) {}

  /// Of as many coordinates, `width` at the most, as make no more than `most` features.
  static OutsideFeatures at_most(std::size_t most, std::size_t width) {
    while (width > 0 && OutsideFeatures(width).count() > most) --width;
    return OutsideFeatures(width);
  }

  std::size_t coordinates() const { return coordinates_; }
  /// Coordinates whose products count, of `width`.
  static std::size_t paired(std::size_t width) { return std::min(width, kMostPaired); }
  /// How many features there are.
  std::size_t count() const {
    const std::size_t some = paired(coordinates_);
    return coordinates_ + some * (some + 1) / 2 + 2;
  }

  /// Writes them [count()]. Bounds: low < high.
  void put(const float* coordinates, double low, double high, float* features) const {
    features = std::copy_n(coordinates, coordinates_, features);
    const std::size_t some = paired(coordinates_);
    for (std::size_t i = 0; i < some; ++i) {
      for (std::size_t j = i; j < some; ++j) *features++ = coordinates[i] * coordinates[j];
    }
    *features++ = static_cast<float>(std::max(low, high - kWidest));
    *features = static_cast<float>(high);
  }
  /// The lower bound among features, as put() has written them.
  double low(const float* features) const { return features[count() - 2]; }
  /// The upper one.
  double high(const float* features) const { return features[count() - 1]; }

 private:
  std::size_t coordinates_ = 0;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
