// SPDX-License-Identifier: Apache-2.0
#include "conformance/backends.hpp"

#include "topksoftmax/exact.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/screeners/certified.hpp"

namespace topksoftmax::testing {

const std::vector<Backend>& all_backends() {
  static const std::vector<Backend> all = {
      {.name = "exact",
       .make = [](const auto& layer, const auto&) { return Exact::make(layer); },
       .exact = true},
      {.name = "fused",
       .make = [](const auto& layer, const auto&) { return Fused::make(layer); },
       .exact = true},
      {.name = "certified",
       .make = [](const auto& layer,
                  const auto& contexts) { return Certified::build(layer, contexts, {.width = 16}); },
       .exact = true},
  };
  return all;
}

}  // namespace topksoftmax::testing
