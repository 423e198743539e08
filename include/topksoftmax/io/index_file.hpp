// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>

#include "topksoftmax/export.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k_softmax.hpp"

// Index files are safetensors files, so that NumPy reads them too (tests/io/numpy_answers.py answers from
// some of them with it). The metadata (strings all):
//
//   kind            the backend's
//   format_version  "1"
//   vocab, dim      V and d of the layer
//   dtype           how its weights are stored: F32, F16, BF16, I8
//   layer_hash      of W and b: an index is loaded for the layer that it was built for, and no other
//   checksum        of all other metadata and of the tensors: see verify_index()
//   options.NAME    the numbers that it was built with, those that were left open as they were chosen
//
// and the tensors, each at a multiple of 64 bytes ("__padding__…" fill the gaps), little-endian:
//
//   kind          tensor              type and shape      what it is
//   exact         –
//   fused         –
//   l2s           clusters            F32 [r, d]          v_t (options.name: "l2s" or "l2s-kmeans")
//                 offsets             U64 [r + 1]         C(t) is ids[offsets[t] … offsets[t + 1])
//                 ids                 I32 [*]             tokens, ascending within a set
//                 history             F64 [*, 3]          of each round: objective, missed, set_size
//   fgd           entries             I32 [*]             rows where searches start
//                 ground.offsets      U64 [V + 1]         row v's links are targets[offsets[v] …
//                 ground.targets      I32 [*]             … offsets[v + 1])
//                 upper.N.offsets     U64 [V + 1]         of the layers above, 0 the sparsest; there are
//                 upper.N.targets     I32 [*]             options.upper_layers of them
//                 rows                I8  [V, *]          the rows, then zeros up to a multiple of 64 …
//                 rows.scales         F32 [V]             … w = scale·q; both absent for layers of I8
//   svd           directions          F32 [width, d]      the leading columns of V, transposed
//                 tokens              F32 [V, width]      the leading columns of UΣ
//   adaptive      ids                 I32 [V]             tokens, the most frequent first
//                 starts              U64 [tiers + 1]     where each tier begins among them, and V
//                 gates               F32 [tiers, d]      a tier is scored if g·h + offset + reach·‖h‖ …
//                 gates.offsets       F32 [tiers]         … is at least the k-th best logit
//                 gates.reach         F32 [tiers]
//   greedy-mips   entries             I32 [D, V, 2]       a weight's bits (float32) and its token, by falling
//                                                         weight; D = d, and one more with a bias
//   pca-mips      components          F32 [depth, d]      of rows lifted by Ippt: the first d coordinates …
//                 components.offsets  F32 [depth]         … and the bias's
//                 medians             F32 [2^depth]       of node n ≥ 1, whose children are 2n and 2n + 1
//                 starts              U32 [2·2^depth + 1] leaf n's tokens are ids[starts[n] … starts[n + 1])
//                 ids                 I32 [V]
//   lsh-mips      directions          F32 [tables·bits,d] of rows lifted by Ippt: the first d coordinates …
//                 directions.offsets  F32 [tables·bits]   … and the bias's
//                 offsets             U32 [tables,        bucket c of table t is
//                                          2^bits + 1]    ids[t, offsets[t, c] … offsets[t, c + 1])
//                 ids                 I32 [tables, V]
//   wta-lsh,      positions           I32 [⌈W/16⌉, u,     of the permutations of band 16g + i: [g, :, :, i]
//   wta-lsh-each                           min(K, d), 16]
//                 tokens              I32 [W·V + 8]       band after band, by code; then eight zeros
//                 slots               U32 [*, 3]          of the cuckoo tables: code, start, length
//                 slot_offsets        U64 [W + 1]         where each band's table begins among them
//                 seeds               U64 [W]             of the tables
//   wta-lsh       frequent            U64 [⌈V/64⌉]        the most frequent tokens, a bit each
//   shortlist     order               I32 [V]             tokens, the most frequent first
//                 list                I32 [*]             those that are scored
//   quantized     prefixes            U8  [⌈V/16⌉, *]     blocks of 16 rows: see kernels::PrefixBlocks
//   certified,    Q                   F16 [d, *]          Qᵀ, as CertifiedScreener names it, with zeros …
//   certify       R                   F32 [M, *]          … behind the M columns of it, and of Rᵀ
//                 norms               F64 [4]             η, ‖R‖, the largest ‖w‖, the largest |b|
//                 weights             F64 [2, 4]          κ of the prefixes, κ of prefixes and tails
//                 outside_position    F64 [1]             α of log Z's estimate
//                 order               I32 [V]             the token of each row of the following; absent: 0,
//                                                         1, 2, …
//                 prefixes            U8  [⌈V/16⌉, *]     kernels::PrefixBlocks, options.prefix coordinates
//                 boxes.centres       U8  [⌈V/256⌉, *]    with boxes.spreads, if options.boxes is 1:
//                 boxes.spreads       U8  [⌈V/256⌉, *]    kernels::PrefixBoxes, around each block of 16 rows
//                 tails               U8  [V, *]          kernels::PrefixTails of the others, if there
//                                                         are any
//   certify       wrapped.*                               kind, options and tensors of the wrapped backend

namespace topksoftmax {

/// The backend whose index TopKSoftmax::save() has written to `path`, of whatever kind the file says, for the
/// layer that it was built for. Every query is answered as by the backend that was saved: with the same
/// instruction set, bit for bit.
///
/// The large tensors are used where they lie in the mapped file, so what one process has read, all others
/// share; the file may be replaced or removed meanwhile, but must not be changed in place or shortened. Cost:
/// reads W once to hash it, and what has to be checked: every size, offset and token id, and that nothing is
/// NaN; a Shortlist copies its rows from W, as when it is built. A damaged file whose checks all hold may
/// answer wrongly, or prove what is not so: see verify_index().
///
/// Throws Error, saying which it is and what to do, for a file that cannot be read, is damaged, holds no
/// index or one of an unknown kind, is of a newer version, or was built for another layer.
TOPKSOFTMAX_EXPORT std::unique_ptr<TopKSoftmax> load_index(const std::filesystem::path& path,
                                                           SoftmaxLayer layer);

/// Reads an index file whole and throws Error unless it is one, and its metadata and tensors are what was
/// written, by their checksum.
TOPKSOFTMAX_EXPORT void verify_index(const std::filesystem::path& path);

}  // namespace topksoftmax
