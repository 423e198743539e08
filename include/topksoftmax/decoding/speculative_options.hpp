// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

#include "topksoftmax/config.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Options of speculative sampling.
struct SpeculativeOptions {
  std::size_t drafts = 4;                     ///< K, tokens drafted a round, at least 1
  std::optional<TokenId> end = std::nullopt;  ///< a token that ends the text; it is appended
};

}  // namespace TOPKSOFTMAX_NAMESPACE
