// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "topksoftmax/config.hpp"
#include "topksoftmax/io/file_access.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// How much of a layer is compared with the layer that an index was built for. What an index proves holds for
/// that layer alone.
enum class LayerCheck : std::uint8_t {
  /// Its sizes, type, transform, scales and biases, and the weights of 1,024 rows that are evenly spread (all
  /// rows where there are no more). That tells apart different models, and states of the same model before
  /// and after training, which moves all rows; not a layer of which somebody has changed a few other rows.
  /// The time does not grow with V·d: no other row is read.
  sampled,
  /// All of it. Cost: reads W once.
  whole,
};

/// How an index file is loaded.
struct LoadOptions {
  FileAccess access = FileAccess::mapped;
  LayerCheck layer_check = LayerCheck::sampled;
};

}  // namespace TOPKSOFTMAX_NAMESPACE
