// SPDX-License-Identifier: Apache-2.0
#include "peers/peers.hpp"

#ifdef TOPKSOFTMAX_BENCH_OPENBLAS
#include "peers/openblas_kernels.hpp"
#endif

namespace topksoftmax::bench {

void add_peers(Registry& registry) {
  registry.add(eigen_peer());
#ifdef TOPKSOFTMAX_BENCH_OPENBLAS
  registry.add(openblas_peer());
#endif
#ifdef TOPKSOFTMAX_BENCH_ONEDNN
  registry.add(onednn_peer());
  registry.add(onednn_bf16_peer());
  registry.add(onednn_int8_peer());
#endif
#ifdef TOPKSOFTMAX_BENCH_FAISS
  registry.add(faiss_flat_peer());
  registry.add(faiss_ivf_peer());
  registry.add(faiss_hnsw_peer());
  registry.add(faiss_sq8_peer());
#endif
  registry.add(hnswlib_peer());
  registry.add(hnswlib_l2_peer());
}

void prepare_peers([[maybe_unused]] char** argv) {
#ifdef TOPKSOFTMAX_BENCH_OPENBLAS
  choose_openblas_kernels(argv);
#endif
}

}  // namespace topksoftmax::bench
