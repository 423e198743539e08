// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <memory>
#include <string>

#include "topksoftmax/io/index_file.hpp"
#include "topksoftmax/registry/registry.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k_softmax.hpp"

namespace topksoftmax::bench {

/// A file that an index was saved to.
struct SavedIndex {
  std::string kind;
  std::uintmax_t bytes = 0;
};

/// Saves a backend's index and prints the file's kind and size. Throws Error where it cannot be written, and
/// for backends that have no index to save.
SavedIndex save_index(const TopKSoftmax& backend, const std::filesystem::path& path, std::ostream& out);

/// Loads an index for a layer; for the same layer in float32 where it was built for that. Throws Error where
/// it does not fit.
std::unique_ptr<TopKSoftmax> load_index_for(const SoftmaxLayer& layer, const std::filesystem::path& path,
                                            const Registry& registry, const LoadOptions& options = {});

}  // namespace topksoftmax::bench
