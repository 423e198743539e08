// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/config.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The outcome of a drafted token.
struct DraftVerdict {
  /// Whether the draft stands.
  bool accepted = false;
  TokenId token = 0;  ///< the draft, or what takes its place
};

}  // namespace TOPKSOFTMAX_NAMESPACE
