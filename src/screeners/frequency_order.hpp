// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {

/// All tokens, the most frequent first, of equals the lower id: by their counts [V] in the training text;
/// without any (empty) by bias, which grows with the log of the frequency; without biases by the length of
/// their rows. Throws Error, naming the backend, for counts of another number or below 0.
std::vector<TokenId> frequency_order(const SoftmaxLayer& layer, std::span<const std::int64_t> counts,
                                     std::string_view backend);

}  // namespace topksoftmax
