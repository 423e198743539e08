// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>

#include "topksoftmax/export.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k_softmax.hpp"

// Index files are safetensors files, so that NumPy reads them too. The metadata (strings all):
//
//   kind            the backend's
//   format_version  "1"
//   vocab, dim      V and d of the layer
//   dtype           how its weights are stored: F32, F16, BF16, I8
//   layer_hash      of W and b: an index is loaded for the layer that it was built for, and no other
//   checksum        of all other metadata and of the tensors: see verify_index()
//   options.NAME    every option of the build, with what was left open chosen
//
// and the tensors, each at a multiple of 64 bytes ("__padding__…" fill the gaps), little-endian:
//
//   kind       tensor      type and shape     what it is
//   exact      –
//   fused      –
//   l2s        clusters    F32 [r, d]         v_t (options.name: "l2s" or "l2s-kmeans")
//              offsets     U64 [r + 1]        C(t) is ids[offsets[t] … offsets[t + 1])
//              ids         I32 [*]            tokens, ascending within a set
//              history     F64 [*, 3]         of each round: objective, missed, set_size
//   svd        directions  F32 [width, d]     the leading columns of V, transposed
//              tokens      F32 [V, width]     the leading columns of UΣ
//   quantized  prefixes    U8  [⌈V/16⌉, *]    blocks of 16 rows, as kernels::PrefixBlocks lays them out
//   certified  Q           F32 [M, d]         with R and the others as CertifiedScreener names them
//              R           F32 [M, M]
//              norms       F64 [2]            η, ‖R‖
//              weights     F64 [2, 4]         κ of the prefixes, κ of prefixes and tails
//              prefixes    U8  [⌈V/16⌉, *]    kernels::PrefixBlocks of options.prefix coordinates
//              tails       U8  [V, *]         kernels::PrefixTails of the others; absent if there are none

namespace topksoftmax {

/// The backend whose index TopKSoftmax::save() has written to `path`, of whatever kind the file says, for the
/// layer that it was built for. Every query is answered as by the backend that was saved: with the same
/// instruction set, bit for bit.
///
/// The large tensors are used where they lie in the mapped file, so what one process has read, all others
/// share; the file may be replaced or removed meanwhile, but must not be shortened. Cost: reads W once to
/// hash it, and what has to be checked: every size, offset and token id, and that numbers are finite. A
/// damaged file whose checks all hold may answer wrongly, or prove what is not so: see verify_index().
///
/// Throws Error, saying which it is and what to do, for a file that cannot be read, is damaged, holds no
/// index or one of an unknown kind, is of a newer version, or was built for another layer.
TOPKSOFTMAX_EXPORT std::unique_ptr<TopKSoftmax> load_index(const std::filesystem::path& path,
                                                           SoftmaxLayer layer);

/// Reads an index file whole and throws Error unless it is one, and holds what was written, by its checksum.
TOPKSOFTMAX_EXPORT void verify_index(const std::filesystem::path& path);

}  // namespace topksoftmax
