// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "topksoftmax/config.hpp"
#include "topksoftmax/io/gguf.hpp"
#include "topksoftmax/kernels/logit_transform.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The softmax layer of a language model in a GGUF file, as far as the file tells: views that stay valid as
/// long as its storage() lives.
struct GgufHead {
  std::string name;                ///< "general.name" of the metadata, or else the file's name
  GgufTensor weight;               ///< [V,d], of any type that is known
  std::optional<GgufTensor> bias;  ///< [V], where there is one
  bool tied = false;               ///< the weights are those of the embedding
  /// [V], which tells what tokens of the model the rows are, as the drafts of EAGLE-3 have it; nothing: row i
  /// is token i. See gguf_token_ids().
  std::optional<GgufTensor> d2t;
  /// The model's logit scale and soft cap.
  LogitTransform transform;

  /// V, the number of tokens.
  std::size_t vocab() const { return weight.shape[0]; }
  /// d, the length of a context.
  std::size_t dim() const { return weight.shape[1]; }
};

/// Finds the head: the tensors output.weight, or where there is none token_embd.weight, and output.bias; and
/// with an output.weight, d2t or else d2t.weight.
///
/// The transform is what llama.cpp makes of ARCH.final_logit_softcapping and ARCH.logit_scale, where ARCH is
/// general.architecture: logits are multiplied by the scale (Command R, Grok), but divided by that of Granite
/// and MiniCPM; 0 is none. Files of Gemma 2, 3n and 4 without a soft cap have one of 30, those of Grok
/// without a scale 1/√3, and older ones of MiniCPM without a scale 256/d, as their models do. (llama.cpp
/// multiplied by 256/d when these were written, and now divides by it.) What a model's code does beyond that
/// is in no file: MiniCPM3 scales its contexts.
///
/// Cost: a few look-ups. Throws Error where there are no such weights; for a file of a model that is split
/// over several ("split.count"), unless it is the first, which has the metadata, and has an output.weight;
/// where they are of another shape or of an unknown type; where the bias or d2t has
/// another length; and for a transform that LogitTransform does not allow.
TOPKSOFTMAX_EXPORT GgufHead find_gguf_head(const GgufFile& file);

}  // namespace TOPKSOFTMAX_NAMESPACE
