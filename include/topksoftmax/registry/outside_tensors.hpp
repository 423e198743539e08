// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/registry/description.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A backend's own tensors, and those of the mass outside of its candidates, of so many groups.
inline std::vector<TensorDescription> with_outside_mass(std::vector<TensorDescription> tensors,
                                                        const std::string& groups) {
  tensors.push_back(
      {"outside.weights", "F32", "[" + groups + ", d]",
       "log of the mass outside of the candidates ≈ w·h + offset; absent, as the next two, where "
       "it was not learned"});
  tensors.push_back({"outside.offsets", "F32", "[" + groups + "]", "their offsets"});
  tensors.push_back(
      {"outside.error", "F64", "[3]",
       "|error of log Z| on held-out contexts: median, 99th percentile; and the largest log(mass "
       "outside / mass of the candidates), which bounds what is counted"});
  return tensors;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
