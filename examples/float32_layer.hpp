// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <filesystem>

#include "topksoftmax/io/head_file.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace topksoftmax::examples {

/// The softmax layer of a head file with a copy of its weights as float32, whatever type stores them. Throws
/// Error as HeadFile does.
inline SoftmaxLayer float32_layer(const std::filesystem::path& path) {
  const SoftmaxLayer stored = HeadFile::open(path).layer();
  const Eigen::VectorXf biases = stored.has_bias() ? stored.biases() : Eigen::VectorXf();
  return SoftmaxLayer::own(stored.weights(), biases).with(stored.transform());
}

}  // namespace topksoftmax::examples
