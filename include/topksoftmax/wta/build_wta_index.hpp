// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/config.hpp"
#include "topksoftmax/wta/wta_index.hpp"

#if !defined(TOPKSOFTMAX_BUILDERS_ELSEWHERE)  // see config.hpp
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/wta_bands.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/wta/cuckoo_table.hpp"
#include "topksoftmax/wta/wta_hash.hpp"
#include "topksoftmax/wta/wta_index.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The band's tokens in the order of their codes, and the table of the spans of equal ones. keys [V] holds
/// code and token, the code in the upper half, and is sorted.
inline CuckooTable make_band(std::vector<std::uint64_t>& keys, TokenId* tokens) {
  std::sort(keys.begin(), keys.end());
  std::vector<CuckooTable::Entry> entries;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto code = static_cast<std::uint32_t>(keys[i] >> 32);
    if (entries.empty() || entries.back().key != code)
      entries.push_back({code, static_cast<std::uint32_t>(i), 0});
    ++entries.back().length;
    tokens[i] = static_cast<TokenId>(keys[i] & 0xffffffffU);
  }
  return CuckooTable(entries);
}

TOPKSOFTMAX_BUILD_INLINE WtaIndex::WtaIndex(const SoftmaxLayer& layer, const WtaHashOptions& options,
                                            const Executor& executor)
    : hash_(layer.dim(), options), vocab_(layer.vocab()) {
  std::vector<TokenId> tokens(bands() * vocab_ + kSpanHead);
  // Rows in groups of 16, transposed, as the kernel takes them.
  const std::size_t dim = layer.dim();
  const std::size_t row_groups = (vocab_ + kWtaGroup - 1) / kWtaGroup;
  std::vector<float> columns(row_groups * dim * kWtaGroup);
  std::vector<float> row(dim);
  for (std::size_t token = 0; token < vocab_; ++token) {
    layer.copy_row(token, row.data());
    float* const group = columns.data() + token / kWtaGroup * dim * kWtaGroup + token % kWtaGroup;
    for (std::size_t j = 0; j < dim; ++j) group[j * kWtaGroup] = row[j];
  }

  const kernels::WtaBands kernel_bands = hash_.kernel_bands();
  std::vector<std::vector<CuckooTable>> tables(kernel_bands.groups);
  for_each_part(executor, kernel_bands.groups, 1, [&](std::size_t g, std::size_t) {
    std::vector<std::uint32_t> codes(row_groups * kWtaGroup * kWtaGroup);  // [row group][band][row]
    for (std::size_t r = 0; r < row_groups; ++r) {
      kernels::wta_codes_batch(kernel_bands.part(g, 1), columns.data() + r * dim * kWtaGroup,
                               codes.data() + r * kWtaGroup * kWtaGroup);
    }
    std::vector<std::uint64_t> keys(vocab_);
    for (std::size_t w = g * kWtaGroup; w < std::min(hash_.bands(), (g + 1) * kWtaGroup); ++w) {
      for (std::size_t token = 0; token < vocab_; ++token) {
        const std::uint32_t code =
            codes[(token / kWtaGroup * kWtaGroup + w % kWtaGroup) * kWtaGroup + token % kWtaGroup];
        keys[token] = std::uint64_t{code} << 32 | token;
      }
      tables[g].push_back(make_band(keys, tokens.data() + w * vocab_));
    }
  });
  tables_.reserve(hash_.bands());
  for (auto& group : tables) std::move(group.begin(), group.end(), std::back_inserter(tables_));
  tokens_ = StoredArray<TokenId>::own(std::move(tokens));
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

#endif
