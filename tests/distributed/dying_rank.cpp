// SPDX-License-Identifier: Apache-2.0
//
// The last rank dies instead of asking. No other may answer.
#include <mpi.h>

#include <csignal>
#include <iostream>

#include "topksoftmax/distributed/sharded_softmax.hpp"
#include "topksoftmax/fused.hpp"

int main(int argc, char** argv) {
  using namespace topksoftmax;
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const SoftmaxLayer layer = SoftmaxLayer::own(RowMajorMatrix::Random(300, 8));
  const VocabularySlice slice =
      even_slice(layer.vocab(), static_cast<std::size_t>(rank), static_cast<std::size_t>(ranks));
  const auto head =
      ShardedSoftmax::make(MPI_COMM_WORLD, slice, [&] { return Fused::make(slice_of(layer, slice)); });
  const Eigen::VectorXf h = Eigen::VectorXf::Ones(8);
  head->query(h, {.k = 3});
  if (rank == 0) std::cout << "all have asked" << std::endl;
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == ranks - 1) std::raise(SIGKILL);
  head->query(h, {.k = 3});
  std::cout << "rank " << rank << " answered" << std::endl;
  MPI_Finalize();
  return 0;
}
