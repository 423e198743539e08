// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/config.hpp"
#include "topksoftmax/storage/stored_lists.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The candidate set C(t) of every cluster t < r, its tokens ascending.
using CandidateSets = StoredLists<TokenId>;

}  // namespace TOPKSOFTMAX_NAMESPACE
