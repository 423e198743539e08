// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Tokens with what their logits are proven not to exceed.
struct BoundedTokens {
  /// The tokens, in no order.
  std::vector<TokenId> ids;
  /// most[i]: what the logit of ids[i] does not exceed; +∞ where nothing is known.
  std::vector<float> most;

  /// Leaves none.
  void clear() {
    ids.clear();
    most.clear();
  }
};

}  // namespace TOPKSOFTMAX_NAMESPACE
