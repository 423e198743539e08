// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Visits `outside_sample`, the option of backends that learn the mass outside of their candidates.
template <class Options, class Visit>
void visit_outside_sample(Options& options, Visit&& visit) {
  visit("outside_sample", options.outside_sample,
        "contexts that the mass outside of the candidates is learned from; 0: it counts as none");
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
