// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax::testing {

/// What the calls make that the descriptions of the standard registry write, in their order.
std::vector<std::shared_ptr<const TopKSoftmax>> make_as_written(const SoftmaxLayer& layer,
                                                                const RowMajorMatrix& contexts,
                                                                const std::vector<std::int64_t>& counts);

}  // namespace topksoftmax::testing
