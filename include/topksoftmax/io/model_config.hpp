// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/logit_transform.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// What a model's config.json says of its output layer, as Hugging Face's Transformers write it.
struct ModelConfig {
  /// The longest file that is read, in bytes.
  static constexpr std::size_t max_bytes = 1'000'000;

  /// The last part of "_name_or_path"; empty where the file has none.
  std::string name;
  /// "tie_word_embeddings": whether the weights are those of the embedding; nothing where the file does not
  /// say, or says one thing of the model and another of the text.
  std::optional<bool> tied;
  /// "logit_scale" (Cohere), "lm_head_multiplier" (Falcon-H1), "output_multiplier_scale" (Grok),
  /// "output_multiplier" (Muse Glimmer), 1/"logits_scaling" (Granite; HyperCLOVA X multiplies by it) or
  /// 1/"mup_width_multiplier" (of Phi-3-small alone); and the first that is there of
  /// "final_logit_softcapping" (Gemma), "logits_soft_cap" (RecurrentGemma) and "output_logit_soft_cap"
  /// (xLSTM). They are of what the output layer gives: a model that scales what it takes (MiniCPM, T5) has
  /// that in its contexts. A key that is left out is none, also where a model's code has a default.
  LogitTransform transform;
};

/// Reads a config.json. What it says in "text_config", of a model with more than text, or in "decoder"
/// (T5Gemma) is taken where it does not say it itself; of "tie_word_embeddings" see ModelConfig::tied. Other
/// keys may have any value, Python's Infinity, -Infinity and NaN among them.
///
/// Throws Error where the file cannot be read, is longer than ModelConfig::max_bytes or is not a JSON object
/// (a number that a double cannot hold counts as malformed); where one of the values above is of another
/// type; and for a transform that LogitTransform does not allow.
TOPKSOFTMAX_EXPORT ModelConfig read_model_config(const std::filesystem::path& path);

}  // namespace TOPKSOFTMAX_NAMESPACE
