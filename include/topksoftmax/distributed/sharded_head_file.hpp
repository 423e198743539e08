// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "topksoftmax/config.hpp"
#include "topksoftmax/distributed/agreement.hpp"
#include "topksoftmax/distributed/communicator.hpp"
#include "topksoftmax/distributed/sharded_softmax.hpp"
#include "topksoftmax/io/head_file.hpp"
#include "topksoftmax/vocabulary_slice.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// A head over the layer of a head file, which every rank opens, and of which each has an even slice: of the
/// weights' bytes it reads these rows alone. make_backend(file, layer) makes the backend over the layer of
/// the slice. Collective. Throws on all ranks as HeadFile::open(), make_backend() and ShardedSoftmax::make()
/// do on any.
template <class MakeBackend>
std::unique_ptr<ShardedSoftmax> shard_head_file(MPI_Comm comm, const std::filesystem::path& path,
                                                const MakeBackend& make_backend);

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE {

template <class MakeBackend>
std::unique_ptr<ShardedSoftmax> shard_head_file(MPI_Comm comm, const std::filesystem::path& path,
                                                const MakeBackend& make_backend) {
  detail::Communicator ranks(comm);
  std::optional<HeadFile> file;
  detail::agree(ranks, [&] { file.emplace(HeadFile::open(path)); });
  const VocabularySlice slice =
      even_slice(file->vocab(), static_cast<std::size_t>(ranks.rank()), ranks.ranks());
  return ShardedSoftmax::make(comm, slice,
                              [&] { return make_backend(*file, file->layer(slice.first, slice.size())); });
}

}  // namespace TOPKSOFTMAX_NAMESPACE
