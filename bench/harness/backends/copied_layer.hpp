// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "topksoftmax/registry/registry.hpp"

namespace topksoftmax::bench {

/// The types that --as takes: "q8_0".
inline constexpr std::string_view copied_types = "q8_0";

/// What an engine would run that stores the layer's weights as `type`: the fused softmax over such a copy, as
/// the row "fused:TYPE". Its answers are exact for the copy, and measured as approximate ones of the layer.
/// Throws UsageError for any other type.
BackendDescription describe_copied_layer(std::string_view type);

}  // namespace topksoftmax::bench
