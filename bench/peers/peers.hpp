// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/registry/registry.hpp"

namespace topksoftmax::bench {

/// Adds the other libraries that were found when the harness was built. They are what the project's own
/// backends are compared with, and never part of the library.
void add_peers(Registry& registry);

/// Called first in main(): may start the program again in an environment in which the peers are at their
/// best.
void prepare_peers(char** argv);

BackendDescription eigen_peer();
BackendDescription hnswlib_peer();
BackendDescription hnswlib_l2_peer();
#ifdef TOPKSOFTMAX_BENCH_OPENBLAS
BackendDescription openblas_peer();
#endif
#ifdef TOPKSOFTMAX_BENCH_ONEDNN
BackendDescription onednn_peer();
BackendDescription onednn_bf16_peer();
BackendDescription onednn_int8_peer();
#endif
#ifdef TOPKSOFTMAX_BENCH_FAISS
BackendDescription faiss_flat_peer();
BackendDescription faiss_ivf_peer();
BackendDescription faiss_hnsw_peer();
BackendDescription faiss_sq8_peer();
#endif

}  // namespace topksoftmax::bench
