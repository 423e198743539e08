// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/registry/description.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The tensors of the hash and its index, which WtaLsh and WtaLshEach both have.
inline std::vector<TensorDescription> wta_tensors() {
  return {
      {"positions", "I32", "[⌈W/16⌉, u, min(K, d), 16]", "of the permutations of band 16g + i: [g, :, :, i]"},
      {"tokens", "I32", "[W·V + 8]", "band after band, by code; then eight zeros"},
      {"slots", "U32", "[*, 3]", "of the cuckoo tables: code, start, length"},
      {"slot_offsets", "U64", "[W + 1]", "where each band's table begins among them"},
      {"seeds", "U64", "[W]", "of the tables"}};
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
