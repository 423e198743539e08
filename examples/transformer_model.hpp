// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "causal_attention.hpp"
#include "layer_norm.hpp"
#include "linear.hpp"
#include "pieces.hpp"
#include "sized_matrix.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"
#include "transformer_block.hpp"

namespace topksoftmax::examples {

/// A transformer language model. Its file holds weight [V×d], which is the input embedding and the output
/// layer both, position.weight [positions×d], the blocks blocks.0.*, blocks.1.*, … (see TransformerBlock),
/// norm.weight and norm.bias [d], and the pieces vocab.utf8 (see Pieces).
class TransformerModel {
 public:
  /// Throws Error, which names the tensor, where one is missing or has another shape or a value that is not
  /// finite.
  explicit TransformerModel(const std::filesystem::path& path)
      : file_(SafetensorsFile::open(path)),
        weight_(file_, "weight"),
        layer_(weight_.layer()),
        position_(sized_matrix(file_, "position.weight", {SafetensorsFile::any_size, dim()})),
        norm_(file_, "norm", layer_.dim()),
        pieces_(file_, "vocab.utf8", layer_.vocab()) {
    if (dim() % CausalAttention::kHead != 0) {
      throw file_.error("weight", "has rows of " + std::to_string(dim()) +
                                      " values, no multiple of a head's " +
                                      std::to_string(CausalAttention::kHead));
    }
    do {
      blocks_.emplace_back(file_, block_name(blocks_.size()), dim());
    } while (has_block(blocks_.size()));
  }

  std::size_t dim() const { return layer_.dim(); }
  std::size_t blocks() const { return blocks_.size(); }
  /// Tokens that the model looks at, at most.
  std::size_t positions() const { return static_cast<std::size_t>(position_.rows()); }
  const SafetensorsFile& file() const { return file_; }
  const Pieces& pieces() const { return pieces_; }

  /// The softmax layer, in the type that the file stores; it shares this model's weights.
  const SoftmaxLayer& layer() const { return layer_; }

  /// Bytes of weights that a token's way through the blocks reads.
  std::size_t body_bytes() const {
    std::size_t bytes = 0;
    for (const TransformerBlock& block : blocks_) bytes += block.bytes();
    return bytes;
  }

  /// What the model remembers of a text.
  struct State {
    std::vector<CausalAttention::Cache> caches;  ///< of each block
    std::size_t read = 0;                        ///< tokens that are in them
  };

  /// A text of which nothing is read yet.
  State start() const {
    return {
        std::vector<CausalAttention::Cache>(blocks_.size(), {dim() / CausalAttention::kHead, positions()}),
        0};
  }

  /// Reads the next tokens of a text; returns the contexts h [n×d], row i that which the token after
  /// tokens[i] is predicted from. They are bit for bit the same whether tokens are read together or one by
  /// one, on one thread or on many. Throws Error where the text becomes longer than positions().
  RowMajorMatrix read(std::span<const TokenId> tokens, State& state, std::size_t threads = 1) const {
    if (tokens.size() > positions() - state.read) {
      throw Error("the model looks at " + std::to_string(positions()) + " tokens; there are " +
                  std::to_string(state.read) + ", and " + std::to_string(tokens.size()) + " more do not fit");
    }
    RowMajorMatrix X(static_cast<Eigen::Index>(tokens.size()), static_cast<Eigen::Index>(dim()));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      auto row = X.row(static_cast<Eigen::Index>(i));
      layer_.copy_row(static_cast<std::size_t>(tokens[i]), row.data());
      row += position_.row(static_cast<Eigen::Index>(state.read + i));
    }
    for (std::size_t n = 0; n < blocks_.size(); ++n) {
      blocks_[n].apply(X, state.read, state.caches[n], threads);
    }
    state.read += tokens.size();
    return norm_(X);
  }

 private:
  static std::string block_name(std::size_t n) { return "blocks." + std::to_string(n); }

  bool has_block(std::size_t n) const {
    const std::string prefix = block_name(n) + ".";
    return std::ranges::any_of(file_.tensors(),
                               [&](const TensorView& tensor) { return tensor.name.starts_with(prefix); });
  }

  SafetensorsFile file_;
  Linear weight_;
  SoftmaxLayer layer_;
  RowMajorMatrix position_;
  LayerNorm norm_;
  Pieces pieces_;
  std::vector<TransformerBlock> blocks_;
};

}  // namespace topksoftmax::examples
