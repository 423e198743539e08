// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/io/checkpoint.hpp"
#include "topksoftmax/io/checkpoint_head.hpp"
#include "topksoftmax/io/gguf.hpp"
#include "topksoftmax/io/gguf_head.hpp"
#include "topksoftmax/io/gguf_layer.hpp"
#include "topksoftmax/io/head_file.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The softmax layer of a model, as its file has it.
struct ModelLayer {
  std::string name;    ///< the model's
  SoftmaxLayer layer;  ///< its weights in the type that they are stored in, with the model's transform
  /// The tokens that the rows are, where these are not all of the model's: what MappedVocabulary::wrap()
  /// takes. Empty: row i is token i.
  std::vector<TokenId> token_of_row;
};

/// Opens the softmax layer of a model in whatever format it is: its folder as Hugging Face's Transformers
/// save it, or the model.safetensors or model.safetensors.index.json in it (open_checkpoint_layer()), a GGUF
/// file (open_gguf_layer()), or a head file (HeadFile). Weights are used where they lie in the mapped file; a
/// copy where they do not lie at a multiple of their size.
///
/// Cost: one read of the weights. Throws Error as these do.
inline ModelLayer open_model_layer(const std::filesystem::path& path);

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

inline ModelLayer checkpoint_model_layer(const std::filesystem::path& path) {
  const ModelCheckpoint model = open_model_checkpoint(path);
  const CheckpointHead head = find_checkpoint_head(model.tensors, model.config);
  SoftmaxLayer layer = checkpoint_layer(model, head);
  std::vector<TokenId> token_of_row = checkpoint_token_ids(model.tensors, head, layer.vocab());
  return {.name = model.name, .layer = std::move(layer), .token_of_row = std::move(token_of_row)};
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline ModelLayer open_model_layer(const std::filesystem::path& path) {
  std::error_code unknown;  // who opens the path says what is wrong with it
  if (std::filesystem::is_directory(path, unknown)) return detail::checkpoint_model_layer(path);
  if (GgufFile::recognises(path)) {
    const GgufFile file = GgufFile::open(path);
    const GgufHead head = find_gguf_head(file);
    return {.name = head.name, .layer = gguf_layer(file), .token_of_row = gguf_token_ids(file, head)};
  }
  if (const std::optional<HeadFile> file = HeadFile::open_if_head(path)) {
    return {.name = file->name(), .layer = file->layer(), .token_of_row = {}};
  }
  return detail::checkpoint_model_layer(path);
}

}  // namespace TOPKSOFTMAX_NAMESPACE
