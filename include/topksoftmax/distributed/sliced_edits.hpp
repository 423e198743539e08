// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "topksoftmax/allowed_tokens.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/vocabulary_slice.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Edits of rows of the whole layer as those of a slice's.
struct SlicedEdits {
  ScratchBuffer mask;
  ScratchBuffer biases;

  /// In this memory until it is called again. Cost: O(slice/64 + biases).
  kernels::LogitEdits of(const kernels::LogitEdits& edits, const VocabularySlice& slice) {
    kernels::LogitEdits sliced;
    if (!edits.allowed.empty()) {
      const std::size_t count = (slice.size() + 63) / 64;
      auto* const words = mask.get<std::uint64_t>(count);
      const std::size_t shift = slice.first % 64;
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t at = slice.first / 64 + i;
        words[i] = edits.allowed.block(at) >> shift;
        if (shift != 0) words[i] |= edits.allowed.block(at + 1) << (64 - shift);
      }
      sliced.allowed = AllowedTokens(words, count);
    }
    auto* const own = biases.get<TokenBias>(edits.bias_count);
    for (std::size_t b = 0; b < edits.bias_count; ++b) {
      const auto row = static_cast<std::size_t>(edits.bias[b].id);
      if (!slice.holds(row)) continue;
      own[sliced.bias_count++] = {static_cast<TokenId>(row - slice.first), edits.bias[b].bias};
    }
    sliced.bias = own;
    return sliced;
  }
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
