// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "c/workspace.hpp"
#include "topksoftmax/c/topksoftmax.h"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/query_options.hpp"

namespace topksoftmax::c {

/// The caller's contexts, `stride` floats from one to the next (0: dim). Throws std::invalid_argument for
/// some that cannot be.
Contexts contexts_of(const float* contexts, std::size_t batch, std::size_t dim, std::size_t stride);

/// The options of each context of a batch, in the workspace. Throws std::invalid_argument as options_of()
/// does, naming what is asked and the context.
std::span<const QueryOptions> options_of_each(const char* asked, const topk_query_options* const* given,
                                              std::size_t batch, topk_workspace& workspace);

}  // namespace topksoftmax::c
