// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <array>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "lstm_cell.hpp"
#include "sized_matrix.hpp"
#include "topksoftmax/io/head_file.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/rows/float32_copy.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"
#include "vocabulary.hpp"

namespace topksoftmax::examples {

/// A word-level LSTM language model of two layers, read from a language model file (its tensors are listed in
/// .github/docs/files.md). It runs many streams of text side by side: one row of every matrix a stream.
class LstmModel {
 public:
  static constexpr std::size_t kLayers = 2;

  /// What the model remembers of each stream.
  using State = std::array<LstmState, kLayers>;

  /// Throws Error, which names the tensor, where one is missing, has another shape or a value that is not
  /// finite, or belongs to a third layer.
  explicit LstmModel(const std::filesystem::path& path)
      : file_(SafetensorsFile::open(path)),
        layer_(float32_copy(HeadFile::open(path).layer())),
        embedding_(read_embedding()),
        layers_{LstmCell(file_, "lstm", "l0", static_cast<std::size_t>(embedding_.cols()), layer_.dim()),
                LstmCell(file_, "lstm", "l1", layer_.dim(), layer_.dim())},
        vocabulary_(file_, "vocab.utf8", vocab()) {
    constexpr const char* third = "lstm.weight_ih_l2";
    if (file_.contains(third)) throw file_.error(third, "is of a third layer; the model must have two");
  }

  std::size_t vocab() const { return layer_.vocab(); }
  Eigen::Index dim() const { return static_cast<Eigen::Index>(layer_.dim()); }
  const SafetensorsFile& file() const { return file_; }
  const std::string& word(TokenId id) const { return vocabulary_.word(id); }
  TokenId token(const std::string& word) const { return vocabulary_.token(word); }

  /// The softmax layer in float32; it shares this model's weights.
  const SoftmaxLayer& layer() const { return layer_; }

  /// Streams that have read nothing yet.
  State start(Eigen::Index streams) const {
    return {LstmState::zero(streams, dim()), LstmState::zero(streams, dim())};
  }

  /// Reads one token of every stream; returns the contexts h [streams×d] that the next tokens are predicted
  /// from, which live in the state.
  const RowMajorMatrix& read(std::span<const TokenId> tokens, State& state) const {
    RowMajorMatrix input(static_cast<Eigen::Index>(tokens.size()), embedding_.cols());
    for (std::size_t i = 0; i < tokens.size(); ++i)
      input.row(static_cast<Eigen::Index>(i)) = embedding_.row(tokens[i]);
    RowMajorMatrix gates;
    for (std::size_t l = 0; l < kLayers; ++l) {
      layers_[l].read(l == 0 ? input : state[l - 1].hidden, gates);
      layers_[l].step(gates, state[l]);
    }
    return state.back().hidden;
  }

 private:
  /// Of its own, or tied to the softmax layer's weights.
  RowMajorMatrix read_embedding() const {
    constexpr const char* own = "embedding.weight";
    return file_.contains(own) ? sized_matrix(file_, own, {vocab(), SafetensorsFile::any_size})
                               : layer_.weights();
  }

  SafetensorsFile file_;
  SoftmaxLayer layer_;
  RowMajorMatrix embedding_;
  std::array<LstmCell, kLayers> layers_;
  Vocabulary vocabulary_;
};

}  // namespace topksoftmax::examples
