// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "support/layers.hpp"
#include "topksoftmax/io/safetensors.hpp"

namespace topksoftmax::testing {

/// A head that the tool is run on, small enough for every command: random weights and biases, contexts of a
/// few topics, and counts that fall from token to token.
struct TinyHead {
  static constexpr std::size_t kVocab = 300;
  static constexpr std::size_t kDim = 16;
  static constexpr std::size_t kTrain = 400;
  static constexpr std::size_t kTest = 90;

  RowMajorMatrix weight = random_matrix(kVocab, kDim, 1, 0.3F);
  Eigen::VectorXf bias = random_vector(kVocab, 2);
  RowMajorMatrix train = clustered_contexts(kTrain, kDim, 5, 3);
  RowMajorMatrix test = clustered_contexts(kTest, kDim, 5, 3);
  std::vector<std::int32_t> counts = falling_counts();

  /// As a head file, without what is empty.
  void write(const std::filesystem::path& path, const TensorMetadata& metadata = {{"name", "tiny"}}) const {
    std::vector<TensorView> tensors;
    const auto add = [&tensors](const char* name, std::vector<std::size_t> shape, const auto& all) {
      if (!all.empty()) tensors.push_back(tensor_view(name, std::move(shape), all));
    };
    const auto rows = [](const RowMajorMatrix& matrix) { return static_cast<std::size_t>(matrix.rows()); };
    add("weight", {kVocab, kDim}, values(weight));
    add("bias", {kVocab}, std::span(bias.data(), static_cast<std::size_t>(bias.size())));
    add("contexts.train", {rows(train), kDim}, values(train));
    add("contexts.test", {rows(test), kDim}, values(test));
    add("counts", {kVocab}, counts);
    write_safetensors(path, tensors, metadata);
  }

 private:
  static std::vector<std::int32_t> falling_counts() {
    std::vector<std::int32_t> counts(kVocab);
    std::iota(counts.rbegin(), counts.rend(), 1);
    return counts;
  }
};

}  // namespace topksoftmax::testing
