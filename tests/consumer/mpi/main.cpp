// SPDX-License-Identifier: Apache-2.0
//
// Every rank has a slice, and all have the answer of one that has the whole layer.
#include <mpi.h>

#include <cstdio>
#include <topksoftmax/distributed/sharded_softmax.hpp>
#include <topksoftmax/topksoftmax.hpp>

int main(int argc, char** argv) {
  using namespace topksoftmax;
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int differs = 0;
  {
    RowMajorMatrix W(500, 16);
    for (Eigen::Index i = 0; i < W.size(); ++i)
      W.data()[i] = static_cast<float>(i * 7919 % 997) / 997.0F - 0.5F;
    const Eigen::VectorXf h = Eigen::VectorXf::LinSpaced(16, -1.0F, 1.0F);
    const SoftmaxLayer layer = SoftmaxLayer::borrow(W);
    const VocabularySlice slice =
        even_slice(layer.vocab(), static_cast<std::size_t>(rank), static_cast<std::size_t>(ranks));
    const auto head =
        ShardedSoftmax::make(MPI_COMM_WORLD, slice, [&] { return Fused::make(slice_of(layer, slice)); });
    const TopK answer = head->query(h, {.k = 5});
    const TopK expected = Fused::make(layer)->query(h, {.k = 5});
    differs =
        answer.ids != expected.ids || answer.logits != expected.logits || answer.log_z != expected.log_z;
    if (rank == 0) std::printf("%d ranks, token %d\n", ranks, answer.ids.front());
  }
  MPI_Finalize();
  return differs;
}
