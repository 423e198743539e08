// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <iosfwd>

#include "topksoftmax/io/index_file.hpp"
#include "topksoftmax/top_k_softmax.hpp"

namespace topksoftmax::bench {

/// Saves a backend's index and prints the file's kind and size. Throws Error where it cannot be written, and
/// for backends that have no index to save.
void save_index(const TopKSoftmax& backend, const std::filesystem::path& path, std::ostream& out);

}  // namespace topksoftmax::bench
