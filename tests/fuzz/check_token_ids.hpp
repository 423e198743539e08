// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "fuzz/targets.hpp"
#include "topksoftmax/row_map.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace topksoftmax::fuzz {

/// What a file tells of the tokens that a layer's rows are is a map, or an Error.
inline void check_token_ids(const SoftmaxLayer& layer, const std::vector<TokenId>& ids) {
  if (ids.empty()) return;
  require(ids.size() == layer.vocab(), "there is a token for every row");
  const auto vocab = static_cast<std::size_t>(*std::max_element(ids.begin(), ids.end())) + 1;
  const RowMap map(StoredArray<TokenId>::copy(ids), vocab);
  for (std::size_t row = 0; row < ids.size(); ++row) {
    require(map.row_of(ids[row]) == static_cast<TokenId>(row), "a row is found by its token");
  }
  require(map.bytes() <= 24 * ids.size(), "a map is as large as its rows are many");
}

}  // namespace topksoftmax::fuzz
