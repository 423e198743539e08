// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "topksoftmax/config.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The sum modulo 2⁶⁴ of a hash of each row, its number (that of the first is `first`), its weights and their
/// type, its scale and its bias. Those of a layer's slices add up to that of the layer, so it tells layers
/// apart that nobody has as a whole. It tells apart what differs by chance, not by malice. Cost: reads the
/// layer once.
TOPKSOFTMAX_EXPORT std::uint64_t sum_of_row_hashes(const SoftmaxLayer& layer, std::size_t first);

}  // namespace TOPKSOFTMAX_NAMESPACE
