// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax::bench {

/// A head file as the harness works with it.
struct Head {
  std::string file;
  std::string name;
  SoftmaxLayer layer;
  RowMajorMatrix train;              ///< [N×d], what backends learn from; may be empty
  RowMajorMatrix test;               ///< [M×d], what they are judged on; may be empty
  std::vector<std::int64_t> counts;  ///< [V], how often each token occurred; may be empty
};

/// Reads a head file, its weights as float32: what indexes are built for. Throws Error where it cannot be
/// read.
Head load_head(const std::filesystem::path& path);

/// The same with the weights in the type that they are stored in: what is measured, so that an exact scan
/// reads no more than it must.
Head load_stored_head(const std::filesystem::path& path);

/// Throws Error where a value of a file's tensor is not finite: with its row and column.
void check_finite(const std::filesystem::path& file, const std::string& tensor, const RowMajorMatrix& values);

/// Throws Error where a head has no contexts to measure on, or one that is not finite.
void require_test_contexts(const Head& head);

}  // namespace topksoftmax::bench
