// SPDX-License-Identifier: Apache-2.0
#include "c/batches.hpp"

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>

#include "c/guard.hpp"
#include "c/handles.hpp"
#include "c/workspace.hpp"
#include "topksoftmax/c/topksoftmax.h"
#include "topksoftmax/check_query.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/query_options.hpp"

namespace topksoftmax::c {

Contexts contexts_of(const float* contexts, std::size_t batch, std::size_t dim, std::size_t stride) {
  if (batch != 0) required(contexts, "contexts");
  if (stride != 0 && stride < dim) {
    throw std::invalid_argument("contexts are " + std::to_string(stride) +
                                " floats apart, less than their length " + std::to_string(dim));
  }
  return {contexts, batch, dim, stride != 0 ? stride : dim};
}

std::span<const QueryOptions> options_of_each(const char* asked, const topk_query_options* const* given,
                                              std::size_t batch, topk_workspace& workspace) {
  if (workspace.biases_of_each.size() < batch) workspace.biases_of_each.resize(batch);
  workspace.options_of_each.clear();
  for (std::size_t q = 0; q < batch; ++q) {
    detail::naming_context(asked, q, [&] {
      workspace.options_of_each.push_back(options_of(given[q], workspace.biases_of_each[q]));
    });
  }
  return workspace.options_of_each;
}

}  // namespace topksoftmax::c
