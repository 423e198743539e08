// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k_softmax.hpp"

namespace topksoftmax::testing {

/// A backend as the conformance suite builds it: of the standard registry, with settings for small layers.
struct Backend {
  std::string name;
  std::function<std::unique_ptr<TopKSoftmax>(const SoftmaxLayer&, const RowMajorMatrix& contexts)> make;
  std::string system{};       ///< its own name, which several may have
  bool exact = false;         ///< every answer is the exact top-k
  bool exhaustible = true;    ///< full effort is the exact top-k
  bool shares_batch = false;  ///< candidates are shared over a batch, which may add tokens to a query's list

  friend void PrintTo(const Backend& backend, std::ostream* out) { *out << backend.name; }
};

const std::vector<Backend>& all_backends();

/// Its name as googletest takes it: letters, digits and underscores.
std::string suite_name(const Backend& backend);

}  // namespace topksoftmax::testing
