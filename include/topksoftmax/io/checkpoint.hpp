// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/d2t.hpp"
#include "topksoftmax/io/checkpoint_head.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/io/safetensors_shards.hpp"
#include "topksoftmax/io/stored_layer.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The softmax layer of a checkpoint whose weights [V,d] are the tensor of this name, in F32, F16 or BF16,
/// with the bias of that name, [V] or [1,V], if one is given. The weights are used where they lie in the
/// mapped file; a copy where they do not lie at a multiple of their size.
///
/// The logits have no transform: open_checkpoint_layer() takes it from the model's config.json, and
/// SoftmaxLayer::with() from the caller. Cost: that of SoftmaxLayer::own(), one read of the weights. Throws
/// Error where a tensor is missing or of another shape or type, and for weights that no layer has.
inline SoftmaxLayer checkpoint_layer(const SafetensorsShards& checkpoint, std::string_view weight,
                                     std::string_view bias = {});

/// The same of a model, with its transform.
inline SoftmaxLayer checkpoint_layer(const ModelCheckpoint& model, const CheckpointHead& head) {
  return checkpoint_layer(model.tensors, head.weight, head.bias).with(model.config.transform);
}

/// The tokens that the rows of a checkpoint's head are, `rows` of them; none where row i is token i. What
/// MappedVocabulary::wrap() takes. Cost: reads 8·rows bytes. Throws Error for a d2t of another length or
/// type, and for a sum that is no id.
inline std::vector<TokenId> checkpoint_token_ids(const SafetensorsShards& checkpoint,
                                                 const CheckpointHead& head, std::size_t rows);

/// The softmax layer of a language or translation model as Hugging Face's Transformers save it: the model's
/// folder, or the model.safetensors or model.safetensors.index.json in it.
///
/// The tensors are those of find_checkpoint_head(), the logit scale and the soft cap those of the config.json
/// beside them. Ids are numbers of rows: where the head has a d2t, wrap the backend as checkpoint_token_ids()
/// says. Cost: that of checkpoint_layer() and SafetensorsShards::open(). Throws Error as these and
/// open_model_checkpoint() do.
inline SoftmaxLayer open_checkpoint_layer(const std::filesystem::path& path);

}  // namespace TOPKSOFTMAX_NAMESPACE

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

inline std::vector<TokenId> checkpoint_token_ids(const SafetensorsShards& checkpoint,
                                                 const CheckpointHead& head, std::size_t rows) {
  if (head.d2t.empty()) return {};
  checkpoint.tensor(head.d2t, std::array{rows});
  std::vector<std::int64_t> d2t(rows);
  const SafetensorsFile& file = checkpoint.file(head.d2t);
  file.read(head.d2t, std::span<std::int64_t>(d2t));
  return detail::token_ids_from_d2t(d2t, [&](const std::string& what) { return file.error(head.d2t, what); });
}

inline SoftmaxLayer open_checkpoint_layer(const std::filesystem::path& path) {
  const ModelCheckpoint model = open_model_checkpoint(path);
  return checkpoint_layer(model, find_checkpoint_head(model.tensors, model.config));
}

}  // namespace TOPKSOFTMAX_NAMESPACE
