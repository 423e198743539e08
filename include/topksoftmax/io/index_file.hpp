// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/io/load_options.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k_softmax.hpp"

// Index files are safetensors files, so that NumPy reads them too (tests/io/numpy_answers.py answers from
// some of them with it). The metadata (strings all):
//
//   kind            the backend's
//   format_version  "1"
//   vocab, dim      V and d of the layer
//   dtype           how its weights are stored: F32, F16, BF16, I8, Q8_0, Q6_K, Q4_K
//   layer_hash      of W, b and the transform: an index is loaded for its own layer, and no other
//   layer_sample    the same of some rows of W (LayerCheck::sampled)
//   effort          of queries that name none, where one was found that is not as built
//   checksum        of all other metadata and of the tensors: see verify_index()
//   options.NAME    the numbers that it was built with, those that were left open as they were chosen
//
// The tensors, each at a multiple of 64 bytes ("__padding__…" fill the gaps), little-endian, are those of the
// backend: its description lists them, and registry/tables.hpp those of all descriptions. MappedVocabulary,
// which has none, says at its kind what its indexes hold.
namespace TOPKSOFTMAX_NAMESPACE {

/// Writes a backend's index, without the layer, to a file that load_index() reads. The file is written beside
/// `path`, synced, and renamed: on any failure the old one stays whole. Cost: reads the layer once, to hash
/// it. Throws Error where the file cannot be written, and for backends that have no index to save.
TOPKSOFTMAX_EXPORT void save_index(const TopKSoftmax& backend, const std::filesystem::path& path);

/// Opens an index file, for the layer that it was built for, and of this kind (any will do if none is given).
/// `loader` makes backends of the indexes within it, and must outlive the reader.
///
/// The large tensors are used where they lie in the mapped file, so what one process has read, all others
/// share; or in a copy of it (FileAccess), for those who must not trust whoever may write to it. The layer is
/// compared as LayerCheck says; whole for files of 0.1, which hold no sample. Cost: that of the check, and
/// reads the file once where it is copied.
///
/// Throws Error, which says what is wrong and what to do, for a file that cannot be read, is damaged, holds
/// no index or one of another kind, is of a newer version, or was built for another layer.
TOPKSOFTMAX_EXPORT IndexReader open_index(const std::filesystem::path& path, SoftmaxLayer layer,
                                          const BackendLoader& loader, std::string_view kind = {},
                                          const LoadOptions& options = {});

/// The backend whose index save_index() has written to `path`, of whatever kind the file says and the loader
/// knows, for the layer that it was built for. Every query is answered as by the backend that was saved, with
/// its usual effort where none is named: with the same instruction set, bit for bit.
///
/// Cost: that of open_index(), and what has to be checked: every size, offset and token id, and that nothing
/// is NaN; a Shortlist copies its rows from W, as when it is built. A damaged file whose checks all hold may
/// answer wrongly, or prove what is not so: see verify_index(). Throws Error as open_index() does, and for
/// values that cannot be.
inline std::unique_ptr<TopKSoftmax> load_index(const std::filesystem::path& path, SoftmaxLayer layer,
                                               const BackendLoader& loader, const LoadOptions& options = {}) {
  return loader.load(open_index(path, std::move(layer), loader, {}, options));
}

namespace detail {

/// For kinds that have no other index within theirs.
class TOPKSOFTMAX_EXPORT NoParts final : public BackendLoader {
 public:
  std::unique_ptr<TopKSoftmax> load(const IndexReader& in) const override;
};

}  // namespace detail

/// The same where the kind is known: load_index<Certified>(path, layer). Throws Error also for an index of
/// another kind. For backends that are made of others give a loader that knows them.
template <class Backend>
std::unique_ptr<Backend> load_index(const std::filesystem::path& path, SoftmaxLayer layer,
                                    const BackendLoader& loader = detail::NoParts(),
                                    const LoadOptions& options = {}) {
  return load_usual<Backend>(open_index(path, std::move(layer), loader, Backend::kind, options));
}

/// The same for a backend that is not made of others.
template <class Backend>
std::unique_ptr<Backend> load_index(const std::filesystem::path& path, SoftmaxLayer layer,
                                    const LoadOptions& options) {
  return load_index<Backend>(path, std::move(layer), detail::NoParts(), options);
}

/// Throws Error unless an index file is for this layer, whole as it is: what LayerCheck::sampled leaves open.
/// Nothing of it changes, so that a thread may do this while others ask. Cost: reads W once.
TOPKSOFTMAX_EXPORT void verify_layer(const std::filesystem::path& path, const SoftmaxLayer& layer);

/// Reads an index file whole and throws Error unless it is one, and its metadata and tensors are what was
/// written, by their checksum.
TOPKSOFTMAX_EXPORT void verify_index(const std::filesystem::path& path);

}  // namespace TOPKSOFTMAX_NAMESPACE
