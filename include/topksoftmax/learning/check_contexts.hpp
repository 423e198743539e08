// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/numeric/finite.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Throws Error, naming the backend, for contexts of another dimension than the layer's or that are not
/// finite.
inline void check_contexts(const SoftmaxLayer& layer, const Contexts& contexts, std::string_view backend) {
  if (contexts.dim != layer.dim()) {
    throw Error(std::string(backend) + ": contexts have " + std::to_string(contexts.dim) + " values, " +
                other_dimension(contexts.dim, layer));
  }
  for (std::size_t i = 0; i < contexts.count; ++i) {
    if (!all_finite(contexts.row(i), contexts.dim)) {
      throw Error(std::string(backend) + ": context " + std::to_string(i) +
                  " has a value that is not finite");
    }
  }
}

/// The same for backends that need none: a view of none is of no dimension.
inline void check_contexts_if_any(const SoftmaxLayer& layer, const Contexts& contexts,
                                  std::string_view backend) {
  if (contexts.count > 0) check_contexts(layer, contexts, backend);
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
