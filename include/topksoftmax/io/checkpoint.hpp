// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/io/safetensors_shards.hpp"
#include "topksoftmax/io/stored_layer.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The softmax layer of a checkpoint whose weights [V,d] are the tensor of this name, in F32, F16 or BF16,
/// with the bias of that name, [V] or [1,V], if one is given. The weights are used where they lie in the
/// mapped file; a copy where they do not lie at a multiple of their size.
///
/// The logits have no transform: what a model's config.json says of one, LogitTransform tells how to give to
/// SoftmaxLayer::with(). Cost: that of SoftmaxLayer::own(), one read of the weights. Throws Error where a
/// tensor is missing or of another shape or type, and for weights that no layer has.
inline SoftmaxLayer checkpoint_layer(const SafetensorsShards& checkpoint, std::string_view weight,
                                     std::string_view bias = {});

/// The softmax layer of a language or translation model as Hugging Face's Transformers save it: a file
/// model.safetensors, or model.safetensors.index.json with its shards.
///
/// The weights are lm_head.weight; or else, where the layer is tied to an embedding, the first there is of
/// model.embed_tokens.weight, transformer.wte.weight, wte.weight, model.decoder.embed_tokens.weight and
/// model.shared.weight. The bias is lm_head.bias or final_logits_bias, where there is one. For models with
/// other names there is checkpoint_layer(). Cost: also that of SafetensorsShards::open(). Throws Error as
/// both do, and where none of these is in the checkpoint.
inline SoftmaxLayer open_checkpoint_layer(const std::filesystem::path& path);

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The first of these that is in the checkpoint; empty if none is.
inline std::string_view first_tensor(const SafetensorsShards& checkpoint,
                                     std::span<const std::string_view> names) {
  const auto found = std::find_if(names.begin(), names.end(),
                                  [&](std::string_view name) { return checkpoint.contains(name); });
  return found == names.end() ? std::string_view() : *found;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline SoftmaxLayer checkpoint_layer(const SafetensorsShards& checkpoint, std::string_view weight,
                                     std::string_view bias) {
  const TensorView& weights = checkpoint.tensor(weight, std::array{detail::kAnySize, detail::kAnySize});
  if (weights.type != DataType::float32 && weights.type != DataType::float16 &&
      weights.type != DataType::bfloat16) {
    throw checkpoint.file(weight).error(
        weight, "is stored as " + std::string(data_type_name(weights.type)) + ", expected F32, F16 or BF16");
  }
  Eigen::VectorXf biases;
  if (!bias.empty()) {
    const std::size_t vocab = weights.shape[0];
    const bool is_row = checkpoint.tensor(bias).shape.size() == 2;
    const std::array<std::size_t, 2> row = {1, vocab};
    checkpoint.tensor(bias, std::span(row).last(is_row ? 2 : 1));
    biases.resize(static_cast<Eigen::Index>(vocab));
    checkpoint.file(bias).read(bias, std::span<float>(biases.data(), vocab));
  }
  return detail::stored_layer(checkpoint.file(weight), weights, 0, weights.shape[0], std::move(biases), {},
                              {});
}

inline SoftmaxLayer open_checkpoint_layer(const std::filesystem::path& path) {
  constexpr std::array<std::string_view, 6> weights = {
      "lm_head.weight", "model.embed_tokens.weight",         "transformer.wte.weight",
      "wte.weight",     "model.decoder.embed_tokens.weight", "model.shared.weight"};
  constexpr std::array<std::string_view, 2> biases = {"lm_head.bias", "final_logits_bias"};
  const SafetensorsShards checkpoint = SafetensorsShards::open(path);
  const std::string_view weight = detail::first_tensor(checkpoint, weights);
  if (weight.empty()) {
    throw Error(path.string() +
                ": has no tensor \"lm_head.weight\" and no embedding that it could be tied to; "
                "checkpoint_layer() takes other names");
  }
  return checkpoint_layer(checkpoint, weight, detail::first_tensor(checkpoint, biases));
}

}  // namespace TOPKSOFTMAX_NAMESPACE
