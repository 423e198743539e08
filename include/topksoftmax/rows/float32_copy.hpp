// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>

#include "topksoftmax/config.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The layer with its weights as float32, in memory of its own; biases and transform are the layer's. Cost:
/// one read of W, 4·V·d bytes.
inline SoftmaxLayer float32_copy(const SoftmaxLayer& layer) {
  const Eigen::VectorXf biases = layer.has_bias() ? layer.biases() : Eigen::VectorXf();
  return SoftmaxLayer::own(layer.weights(), biases).with(layer.transform());
}

}  // namespace TOPKSOFTMAX_NAMESPACE
