// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "harness/backend.hpp"

namespace topksoftmax::bench {

// A file in backends/ each, or one for a family: name, parameters, how it is built, what --sweep varies.
Backend exact();
Backend fused();
Backend l2s();
Backend l2s_kmeans();
Backend fgd();
Backend svd();
Backend adaptive();
Backend greedy_mips();
Backend pca_mips();
Backend lsh_mips();
Backend wta_lsh();
Backend wta_lsh_each();
Backend shortlist();
Backend quantized();
Backend certified();
Backend certify_l2s();

/// The table of all backends.
std::vector<Backend> make_backends();

}  // namespace topksoftmax::bench
