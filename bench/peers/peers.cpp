// SPDX-License-Identifier: Apache-2.0
#include "peers/peers.hpp"

#include <cstddef>
#include <span>

#ifdef TOPKSOFTMAX_BENCH_OPENBLAS
#include "peers/openblas_kernels.hpp"
#endif

namespace topksoftmax::bench {

void add_peers(std::vector<Backend>& all) {
  const std::size_t ours = all.size();
  all.push_back(eigen_peer());
#ifdef TOPKSOFTMAX_BENCH_OPENBLAS
  all.push_back(openblas_peer());
#endif
#ifdef TOPKSOFTMAX_BENCH_ONEDNN
  all.push_back(onednn_peer());
  all.push_back(onednn_int8_peer());
#endif
#ifdef TOPKSOFTMAX_BENCH_FAISS
  all.push_back(faiss_flat_peer());
  all.push_back(faiss_ivf_peer());
  all.push_back(faiss_hnsw_peer());
  all.push_back(faiss_sq8_peer());
#endif
  all.push_back(hnswlib_peer());
  all.push_back(hnswlib_l2_peer());
  for (Backend& peer : std::span(all).subspan(ours)) peer.has_index = false;
}

void prepare_peers([[maybe_unused]] char** argv) {
#ifdef TOPKSOFTMAX_BENCH_OPENBLAS
  choose_openblas_kernels(argv);
#endif
}

}  // namespace topksoftmax::bench
