// SPDX-License-Identifier: Apache-2.0
#include "harness/backends.hpp"

#include "peers/peers.hpp"

namespace topksoftmax::bench {

std::vector<Backend> make_backends() {
  std::vector<Backend> all = {
      exact(),         //
      fused(),         //
      l2s(),           //
      l2s_kmeans(),    //
      fgd(),           //
      svd(),           //
      adaptive(),      //
      greedy_mips(),   //
      pca_mips(),      //
      lsh_mips(),      //
      wta_lsh(),       //
      wta_lsh_each(),  //
      shortlist(),     //
      quantized(),     //
      certified(),     //
      certify_l2s(),   //
  };
  add_peers(all);
  return all;
}

}  // namespace topksoftmax::bench
