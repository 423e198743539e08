// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "topksoftmax/config.hpp"
#include "topksoftmax/distributed/sharded_softmax.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/io/index_file.hpp"
#include "topksoftmax/vocabulary_slice.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The file of a rank's index: "PATH.00001-of-00004" is that of rank 0 of 4.
std::filesystem::path shard_path(const std::filesystem::path& path, std::size_t rank, std::size_t ranks);

/// Writes an index file for each rank that has rows, that load_sharded_index() reads: see shard_path() and
/// save_index(). Each is written whole or not at all. Collective. Throws Error on all ranks where one of them
/// cannot be written. Cost: reads each slice twice, to hash it.
void save_sharded_index(const ShardedSoftmax& head, const std::filesystem::path& path);

/// The head that save_sharded_index() has written, for the layer that it was built for, over as many ranks
/// with the same slices. make_layer() is asked for the rows of this rank's slice, unless it is empty;
/// `loader` makes the backend. Queries are answered as by the head that was saved: with the same instruction
/// set, bit for bit.
///
/// Collective. Throws Error on all ranks as load_index() does on any, where a file is of another slice than
/// that of its rank, and where the layer differs from that which the index was built for, be it in the rows
/// of other ranks.
template <class MakeLayer>
std::unique_ptr<ShardedSoftmax> load_sharded_index(MPI_Comm comm, const std::filesystem::path& path,
                                                   const VocabularySlice& slice, const MakeLayer& make_layer,
                                                   const BackendLoader& loader);

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

inline void check_shard(const IndexReader& in, const VocabularySlice& slice) {
  VocabularySlice saved;
  in.option(kShardVocab, saved.vocab);
  in.option(kShardFirst, saved.first);
  in.option(kShardLast, saved.last);
  if (saved == slice) return;
  const auto text = [](const VocabularySlice& one) {
    return "rows " + std::to_string(one.first) + " to " + std::to_string(one.last) + " of " +
           std::to_string(one.vocab);
  };
  throw Error(in.source() + ": is of " + text(saved) + ", this rank has " + text(slice) +
              "; load it with as many ranks, each with the slice that it had" + build_it_again("sharded"));
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline std::filesystem::path shard_path(const std::filesystem::path& path, std::size_t rank,
                                        std::size_t ranks) {
  const auto digits = [](std::size_t number) {
    const std::string text = std::to_string(number);
    return std::string(text.size() < 5 ? 5 - text.size() : 0, '0') + text;
  };
  std::filesystem::path shard = path;
  shard += "." + digits(rank + 1) + "-of-" + digits(ranks);
  return shard;
}

inline void save_sharded_index(const ShardedSoftmax& head, const std::filesystem::path& path) {
  head.layer_hash();
  head.agree([&] {
    if (!head.slice().empty()) save_index(head, shard_path(path, head.rank(), head.ranks()));
  });
}

template <class MakeLayer>
std::unique_ptr<ShardedSoftmax> load_sharded_index(MPI_Comm comm, const std::filesystem::path& path,
                                                   const VocabularySlice& slice, const MakeLayer& make_layer,
                                                   const BackendLoader& loader) {
  std::uint64_t saved = 0;
  std::unique_ptr<ShardedSoftmax> head = ShardedSoftmax::make(comm, slice, [&] {
    int rank = 0;
    int ranks = 1;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    const IndexReader in =
        open_index(shard_path(path, static_cast<std::size_t>(rank), static_cast<std::size_t>(ranks)),
                   make_layer(), loader, ShardedSoftmax::kind);
    detail::check_shard(in, slice);
    in.option(detail::kShardLayerHash, saved);
    std::unique_ptr<TopKSoftmax> part = in.load_part(detail::kShardPart);
    // The head's own would differ on ranks whose slice is empty: they have no file.
    if (in.effort() != 0) part->set_usual_effort(in.effort());
    return part;
  });
  const std::uint64_t found = head->layer_hash();
  head->agree([&] {
    if (slice.empty() || saved == found) return;
    throw Error(shard_path(path, head->rank(), head->ranks()).string() +
                ": was built for another layer, which has other rows on other ranks" +
                detail::build_it_again("sharded"));
  });
  return head;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
