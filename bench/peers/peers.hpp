// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "harness/backend.hpp"

namespace topksoftmax::bench {

/// Adds the other libraries that were found when the harness was built. They are what the project's own
/// backends are compared with, and never part of the library.
void add_peers(std::vector<Backend>& all);

/// Called first in main(): may start the program again in an environment in which the peers are at their
/// best.
void prepare_peers(char** argv);

Backend eigen_peer();
Backend hnswlib_peer();
Backend hnswlib_l2_peer();
#ifdef TOPKSOFTMAX_BENCH_OPENBLAS
Backend openblas_peer();
#endif
#ifdef TOPKSOFTMAX_BENCH_ONEDNN
Backend onednn_peer();
Backend onednn_int8_peer();
#endif
#ifdef TOPKSOFTMAX_BENCH_FAISS
Backend faiss_flat_peer();
Backend faiss_ivf_peer();
Backend faiss_hnsw_peer();
Backend faiss_sq8_peer();
#endif

}  // namespace topksoftmax::bench
