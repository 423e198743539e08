// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "harness/files/numpy_file.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax::bench {

/// Contexts of a model.
struct ContextSets {
  RowMajorMatrix train;  ///< [N,d], what backends learn from; may be empty
  RowMajorMatrix test;   ///< [M,d], what they are judged on; may be empty
  bool divided = false;  ///< both are of one array, whose last part is the test
};

/// Whether a file has an array by one of the names that contexts go by.
bool has_named_contexts(const NumpyFile& file);

/// An Error about a file without contexts where some are asked for: nobody names one for nothing.
Error no_contexts_in(const std::string& file);

/// Throws Error where a value of a file's array is not finite: with its row and column.
void check_finite(const std::filesystem::path& file, const std::string& array, const RowMajorMatrix& values);

/// Reads a .npy, .npz or safetensors file: contexts.train and contexts.test (or contexts_train and
/// contexts_test), or else one array, "contexts" or the only matrix there is: its last fifth, at most 10,000
/// contexts, is the test, so that what backends are judged on comes after what they learn from, as in a text.
/// Throws Error where there is no such array, or the only matrix has the name of weights (W, weight,
/// ….weight, lm_head…; a .npy has no such name); for contexts that are not as long as the
/// layer's rows or not finite, and where there are none.
ContextSets load_contexts(const std::filesystem::path& path, const SoftmaxLayer& layer);

/// Contexts to answer, [M,d], of such a file: contexts.test, or else the one array, whole. Throws Error
/// likewise, but not where there are none.
RowMajorMatrix load_all_contexts(const std::filesystem::path& path, const SoftmaxLayer& layer);

/// The same of an open file.
RowMajorMatrix contexts_of(const NumpyFile& file, const SoftmaxLayer& layer);

}  // namespace topksoftmax::bench
