// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "topksoftmax/config.hpp"
#include "topksoftmax/numeric/split_mix.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/query_batch.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What a rank is asked, as a hash: ranks that are asked for different things have no answer in common.
class Call {
 public:
  enum class Kind : std::uint64_t { query, logits, logits_of };

  explicit Call(Kind kind) { add(static_cast<std::uint64_t>(kind)); }

  void add(std::uint64_t number) { hash_ = (std::rotl(hash_, 25) ^ number) * 0x9fb21c651e98df25U; }

  template <class T>
  void add(std::span<const T> values) {
    const auto bytes = std::as_bytes(values);
    add(bytes.size());
    std::size_t at = 0;
    for (; at + sizeof(std::uint64_t) <= bytes.size(); at += sizeof(std::uint64_t)) {
      std::uint64_t word;
      std::memcpy(&word, bytes.data() + at, sizeof(word));
      add(word);
    }
    std::uint64_t rest = 0;
    if (at < bytes.size()) std::memcpy(&rest, bytes.data() + at, bytes.size() - at);
    add(rest);
  }

  /// The contexts of a batch, of `dim` values each, and all else that its queries say, which have the same
  /// options. `rows` is what their mask has bits for, at the least.
  void add(const QueryBatch& batch, std::size_t dim, std::size_t rows) {
    const Query query = batch[0];
    for (const std::uint64_t number :
         {std::uint64_t{query.k}, std::uint64_t{query.effort}, std::uint64_t{query.probabilities},
          std::bit_cast<std::uint64_t>(query.log_z_tolerance), std::uint64_t{query.edits.allowed.empty()}}) {
      add(number);
    }
    for (std::size_t i = 0; !query.edits.allowed.empty() && i < (rows + 63) / 64; ++i) {
      const std::uint64_t beyond = rows - 64 * i >= 64 ? 0 : ~std::uint64_t{0} << rows % 64;
      add(query.edits.allowed.block(i) & ~beyond);
    }
    add(std::span<const TokenBias>(query.edits.bias, query.edits.bias_count));
    for (std::size_t q = 0; q < batch.size(); ++q) add(std::span<const float>(batch[q].h, dim));
  }

  std::uint64_t hash() const { return split_mix(hash_, 0); }

 private:
  std::uint64_t hash_ = 0;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
