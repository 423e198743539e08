// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace topksoftmax::bench {

/// At most `count` ≥ 2 whole numbers from `first` ≥ 1 to `last`, each about the same factor above the one
/// before.
std::vector<std::size_t> geometric(std::size_t first, std::size_t last, std::size_t count);

}  // namespace topksoftmax::bench
