// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "topksoftmax/config.hpp"
#include "topksoftmax/io/model_config.hpp"
#include "topksoftmax/io/safetensors_shards.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// A model as Hugging Face's Transformers save it.
struct ModelCheckpoint {
  /// The model's name: that of its config.json, or else of the folder.
  std::string name;
  /// Its tensors.
  SafetensorsShards tensors;
  /// What config.json says; nothing of it where there is none.
  ModelConfig config;
};

/// Opens a model's folder, or the model.safetensors or model.safetensors.index.json in it, with the
/// config.json that lies beside.
///
/// Cost: that of SafetensorsShards::open(). Throws Error as that and read_model_config() do, where the system
/// does not tell what lies at a path (a name too long, links in a circle), and for a folder that has neither
/// file: of one that has only pickled tensors (pytorch_model.bin) it says so.
TOPKSOFTMAX_EXPORT ModelCheckpoint open_model_checkpoint(const std::filesystem::path& path);

/// The tensors of a checkpoint that are its softmax layer.
struct CheckpointHead {
  /// The name of the weights [V,d].
  std::string weight;
  /// That of the bias [V] or [1,V]; empty: there is none.
  std::string bias;
  /// That of d2t [V], which tells what tokens of the model the rows are, as the drafts of EAGLE-3 have it;
  /// empty: row i is token i. See checkpoint_token_ids().
  std::string d2t;
  /// Whether the weights are those of an embedding.
  bool tied = false;
};

/// The name of a checkpoint's d2t (d2t or model.d2t) that has a value for every row of the tensor `weight`;
/// empty where there is none. Throws Error where there is a d2t and no such tensor, or the values of one of
/// the two are not read.
TOPKSOFTMAX_EXPORT std::string find_d2t(const SafetensorsShards& checkpoint, std::string_view weight);

/// The name of the bias of the tensor `weight`: the same with "bias" in the place of "weight", or else, where
/// find_checkpoint_head() could name that tensor, lm_head.bias, final_logits_bias or output_projection.bias.
/// Empty where there is none of them.
TOPKSOFTMAX_EXPORT std::string find_bias(const SafetensorsShards& checkpoint, std::string_view weight);

/// Finds the head by the names that Transformers' models have.
///
/// The weights are lm_head.weight, or that of the same layer by another name (embed_out.weight of GPT-NeoX,
/// output_projection.weight of fairseq, output.weight of InternLM, and these within a language_model); or
/// else the embedding (model.embed_tokens.weight, transformer.wte.weight, model.shared.weight, …). An
/// embedding is taken where there is no output layer, unless config.json says that the two are not tied. A
/// layer that is tied and stored with other values than the embedding counts as untied, as in Transformers
/// from version 5 on; earlier ones overwrote it. The bias is find_bias()'s.
///
/// Cost: a few look-ups, and where config.json ties two that are both stored, reading them. Throws Error as
/// find_d2t() does, and where none of these is there: it then names the matrices with most rows, which
/// checkpoint_layer() takes by their names.
TOPKSOFTMAX_EXPORT CheckpointHead find_checkpoint_head(const SafetensorsShards& checkpoint,
                                                       const ModelConfig& config = {});

}  // namespace TOPKSOFTMAX_NAMESPACE
