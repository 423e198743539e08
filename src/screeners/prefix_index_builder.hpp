// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "screeners/prefix_index.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/screeners/certified.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax {

/// Learns coordinates, chooses what is left open by the work that it makes for the contexts, and stores the
/// rows. `contexts` [N×d] may be empty. Throws Error for unusable options.
PrefixIndex build_prefix_index(const SoftmaxLayer& layer, const Contexts& contexts,
                               const CertifiedOptions& options);

}  // namespace topksoftmax
