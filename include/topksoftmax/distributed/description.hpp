// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <string_view>

#include "topksoftmax/config.hpp"
#include "topksoftmax/distributed/sharded_softmax.hpp"
#include "topksoftmax/registry/backend_builder.hpp"
#include "topksoftmax/registry/description.hpp"
#include "topksoftmax/registry/settings.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/vocabulary_slice.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// A backend over even slices of a layer that every rank of the communicator has as a whole: what compares
/// ranks is described like what it compares. Building it is collective. The communicator must outlive the
/// description.
inline BackendDescription describe_sharded(MPI_Comm comm, const BackendDescription& inner,
                                           const ShardedOptions& options = {}) {
  BackendDescription sharded = inner;
  sharded.name = "sharded:" + inner.name;
  sharded.kind = ShardedSoftmax::kind;
  sharded.summary = inner.summary + "; each rank has a slice of the vocabulary";
  sharded.advice = {};
  sharded.traits.has_index = false;  // a file for each rank: see sharded_index.hpp
  sharded.tuning.reset();
  sharded.wrapped = {};
  sharded.builder.build = [comm, options, build = inner.builder.build](std::string_view backend,
                                                                       const BuildMaterial& material,
                                                                       const Settings& settings) {
    int rank = 0;
    int ranks = 1;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    const VocabularySlice slice =
        even_slice(material.layer.vocab(), static_cast<std::size_t>(rank), static_cast<std::size_t>(ranks));
    return std::unique_ptr<TopKSoftmax>(ShardedSoftmax::make(
        comm, slice,
        [&] {
          BuildMaterial own = material;
          own.layer = slice_of(material.layer, slice);
          if (!own.counts.empty()) own.counts = own.counts.subspan(slice.first, slice.size());
          return std::shared_ptr<const TopKSoftmax>(build(backend, own, settings));
        },
        options));
  };
  return sharded;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
