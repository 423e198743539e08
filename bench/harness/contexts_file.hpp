// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>

#include "harness/numpy_file.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax::bench {

/// Contexts of a model.
struct ContextSets {
  RowMajorMatrix train;  ///< [N,d], what backends learn from; may be empty
  RowMajorMatrix test;   ///< [M,d], what they are judged on; may be empty
};

/// Whether a file has an array by one of the names that contexts go by.
bool has_named_contexts(const NumpyFile& file);

/// Reads a .npy, .npz or safetensors file: contexts.train and contexts.test (or contexts_train and
/// contexts_test), or else one array, "contexts" or the only matrix there is: its last fifth, at most 10,000
/// contexts, is the test, so that what backends are judged on comes after what they learn from, as in a text.
/// Throws Error where there is no such array, or its contexts are not `dim` long.
ContextSets load_contexts(const std::filesystem::path& path, std::size_t dim);

/// Contexts to answer, [M,d], of such a file: contexts.test, or else the one array, whole.
RowMajorMatrix load_all_contexts(const std::filesystem::path& path, std::size_t dim);

/// The same of an open file.
RowMajorMatrix contexts_of(const NumpyFile& file, std::size_t dim);

}  // namespace topksoftmax::bench
