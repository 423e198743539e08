// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "topksoftmax/distributed/sharded_softmax.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/vocabulary_slice.hpp"

namespace topksoftmax::testing {

inline std::size_t this_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return static_cast<std::size_t>(rank);
}

inline std::size_t rank_count() {
  int count = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &count);
  return static_cast<std::size_t>(count);
}

/// A way to spread rows over ranks: where each rank ends, of so many rows and ranks.
struct Spread {
  std::string name;
  std::vector<std::size_t> (*ends)(std::size_t vocab, std::size_t ranks);

  VocabularySlice slice(std::size_t vocab) const {
    const std::vector<std::size_t> all = ends(vocab, rank_count());
    return {this_rank() == 0 ? 0 : all[this_rank() - 1], all[this_rank()], vocab};
  }
};

/// Even ones, ragged ones, and ranks without rows in front, behind and between.
inline std::vector<Spread> spreads() {
  return {{"even",
           [](std::size_t vocab, std::size_t ranks) {
             std::vector<std::size_t> ends;
             for (std::size_t r = 0; r < ranks; ++r) ends.push_back(even_slice(vocab, r, ranks).last);
             return ends;
           }},
          {"ragged",
           [](std::size_t vocab, std::size_t ranks) {
             std::vector<std::size_t> ends;
             for (std::size_t r = 0; r < ranks; ++r) ends.push_back(std::min(vocab, 1 + r * r * vocab / 7));
             ends.back() = vocab;
             return ends;
           }},
          {"all on the last",
           [](std::size_t vocab, std::size_t ranks) {
             std::vector<std::size_t> ends(ranks, 0);
             ends.back() = vocab;
             return ends;
           }},
          {"all on the first",
           [](std::size_t vocab, std::size_t ranks) { return std::vector<std::size_t>(ranks, vocab); }},
          {"none between", [](std::size_t vocab, std::size_t ranks) {
             std::vector<std::size_t> ends(ranks, vocab / 3);
             ends.back() = vocab;
             return ends;
           }}};
}

/// A head over slices of a layer that every rank has, of what make(slice's layer) makes.
template <class Make>
std::unique_ptr<ShardedSoftmax> sharded(const SoftmaxLayer& layer, const Spread& spread, const Make& make) {
  const VocabularySlice slice = spread.slice(layer.vocab());
  return ShardedSoftmax::make(MPI_COMM_WORLD, slice, [&] { return make(slice_of(layer, slice)); });
}

}  // namespace topksoftmax::testing
