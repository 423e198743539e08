// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// What a model makes of its products before the softmax: logit = scale·z with z = w·h + b, or with a soft
/// cap, logit = cap·tanh(scale·z/cap). It rises, so that tokens keep their order but for products within some
/// units in the last place; logits are equal where floats tell their tanh no longer apart, from about
/// 9·cap/scale on, and ties then go to the lower id.
struct LogitTransform {
  /// What a scale, and a soft cap that is not 0, may be.
  static constexpr float kLeast = 1e-9F;
  static constexpr float kMost = 1e9F;

  /// From 1e-9 to 1e9. Hugging Face's `logit_scale` (Cohere), or 1/`logits_scaling` (Granite).
  float scale = 1.0F;
  /// From 1e-9 to 1e9, or 0: none. Hugging Face's `final_logit_softcapping` (Gemma 2: 30).
  float soft_cap = 0.0F;

  /// Whether logits are the products themselves.
  bool is_identity() const { return scale == 1.0F && soft_cap == 0.0F; }
  /// Whether both make the same of a product.
  bool operator==(const LogitTransform&) const = default;

  /// The logit of a product in float64.
  double operator()(double z) const {
    const double scaled = static_cast<double>(scale) * z;
    if (soft_cap == 0.0F) return scaled;
    const auto cap = static_cast<double>(soft_cap);
    return cap * std::tanh(scaled / cap);
  }
};

namespace kernels {

/// How far a logit that a kernel has transformed may be from that of the same product in real numbers,
/// relative to it: the roundings of the scale and the cap, and Highway's tanh within 4 units in the last
/// place.
inline constexpr float kTransformError = 0x1p-20F;
/// The same where logits are smaller than floats can be.
inline constexpr float kTransformLoss = 0x1p-110F;

/// What two such logits may differ by where they should be equal.
inline double transform_slack(double logit) {
  return 2.0 * static_cast<double>(kTransformError) * std::abs(logit) + static_cast<double>(kTransformLoss);
}

/// No product up to z has a logit above this, as kernels compute it.
inline double highest_logit(const LogitTransform& transform, double z) {
  if (transform.is_identity()) return z;
  const double logit = transform(z);
  // Kernels keep logits finite.
  return std::max(logit + transform_slack(logit), -static_cast<double>(std::numeric_limits<float>::max()));
}

/// No product below this has a logit of `logit` or more, as kernels compute it.
inline float lowest_product(const LogitTransform& transform, float logit) {
  if (transform.is_identity()) return logit;
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  constexpr float kLargest = std::numeric_limits<float>::max();
  // The lowest logit there is may be that of any product.
  if (!(logit > -kLargest)) return kNone;
  const double least = static_cast<double>(logit) - transform_slack(static_cast<double>(logit));
  double scaled = least;
  if (transform.soft_cap != 0.0F) {
    // Nearer to the cap, floats cannot tell.
    constexpr double kSaturated = 1.0 - 0x1p-22;
    const auto cap = static_cast<double>(transform.soft_cap);
    if (least <= -cap) return kNone;
    scaled = cap * std::atanh(std::min(least / cap, kSaturated));
  }
  const double product = scaled / static_cast<double>(transform.scale);
  constexpr double kOutward = 1e-6;
  const double lower = product - kOutward * std::abs(product);
  if (lower < -static_cast<double>(kLargest)) return kNone;
  return std::nextafter(static_cast<float>(std::min(lower, static_cast<double>(kLargest))), kNone);
}

}  // namespace kernels
}  // namespace TOPKSOFTMAX_NAMESPACE
