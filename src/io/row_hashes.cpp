// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/io/row_hashes.hpp"

#include <span>

#include "io/byte_hash.hpp"
#include "io/index_format.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

std::uint64_t sum_of_row_hashes(const SoftmaxLayer& layer, std::size_t first) {
  const kernels::Rows& rows = layer.rows();
  ByteHash of_type;
  of_type.add(layer_dtype(layer));
  std::uint64_t sum = 0;
  for (std::size_t row = 0; row < rows.count; ++row) {
    ByteHash hash = of_type;
    hash.add(std::uint64_t{first + row});
    hash.add(std::span(rows.row(row), rows.row_bytes()));
    for (const float* const values : {rows.scales, rows.bias}) {
      hash.add(
          std::as_bytes(std::span(values == nullptr ? nullptr : values + row, values == nullptr ? 0 : 1)));
    }
    sum += hash.value();
  }
  return sum;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
