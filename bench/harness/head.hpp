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
  SoftmaxLayer layer;                ///< float32
  RowMajorMatrix train;              ///< [N×d], what backends learn from; may be empty
  RowMajorMatrix test;               ///< [M×d], what they are judged on; may be empty
  std::vector<std::int64_t> counts;  ///< [V], how often each token occurred; may be empty
};

/// Reads a head file. Throws Error where it cannot be read.
Head load_head(const std::filesystem::path& path);

/// Throws Error where a head has no contexts to measure on.
void require_test_contexts(const Head& head);

}  // namespace topksoftmax::bench
