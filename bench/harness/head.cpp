// SPDX-License-Identifier: Apache-2.0
#include "harness/head.hpp"

#include <cmath>
#include <cstddef>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>

#include "topksoftmax/error.hpp"
#include "topksoftmax/io/head_file.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/rows/stored_array.hpp"

namespace topksoftmax::bench {

namespace {

/// The layer in memory of its own, where an engine would have it: a file may hold rows at any address, and
/// vectors that cross cache lines read slower.
SoftmaxLayer on_cache_lines(const SoftmaxLayer& layer) {
  struct Storage {
    StoredArray<std::byte> weights;
    SoftmaxLayer layer;  // for the rest
  };
  kernels::Rows rows = layer.rows();
  const std::size_t bytes = rows.count * weight_bytes(rows.type, rows.stride);
  const std::span<const std::byte> weights(static_cast<const std::byte*>(rows.data), bytes);
  auto storage = std::make_shared<Storage>(Storage{StoredArray<std::byte>::copy(weights), layer});
  rows.data = storage->weights.data();
  const auto bias_count = static_cast<std::ptrdiff_t>(rows.bias == nullptr ? 0 : rows.count);
  return SoftmaxLayer::own(rows, bias_count, std::move(storage));
}

Head with_layer(const std::filesystem::path& path, const HeadFile& file, SoftmaxLayer layer) {
  return {.file = path.string(),
          .name = file.name(),
          .layer = std::move(layer),
          .train = file.train_contexts(),
          .test = file.test_contexts(),
          .counts = file.counts()};
}

}  // namespace

Head load_head(const std::filesystem::path& path) {
  const HeadFile file = HeadFile::open(path);
  return with_layer(path, file, file.layer());
}

Head load_stored_head(const std::filesystem::path& path) {
  const HeadFile file = HeadFile::open(path);
  return with_layer(path, file, on_cache_lines(file.stored_layer()));
}

void check_finite(const std::filesystem::path& file, const std::string& tensor,
                  const RowMajorMatrix& values) {
  for (Eigen::Index row = 0; row < values.rows(); ++row) {
    for (Eigen::Index column = 0; column < values.cols(); ++column) {
      if (std::isfinite(values(row, column))) continue;
      throw Error(file.string() + ": " + tensor + "[" + std::to_string(row) + ", " + std::to_string(column) +
                  "] is " + std::to_string(values(row, column)) + "; it must be finite");
    }
  }
}

void require_test_contexts(const Head& head) {
  if (head.test.rows() == 0) {
    throw Error(head.file + ": there are no contexts.test; the harness needs some to measure on");
  }
  check_finite(head.file, "contexts.test", head.test);
}

}  // namespace topksoftmax::bench
