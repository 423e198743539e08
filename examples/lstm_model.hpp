// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <array>
#include <filesystem>
#include <span>
#include <string>

#include "lstm_cell.hpp"
#include "topksoftmax/io/safetensors.hpp"
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

  explicit LstmModel(const std::filesystem::path& path)
      : file_(SafetensorsFile::open(path)),
        weight_(file_.matrix("weight")),
        bias_(file_.vector("bias")),
        embedding_(file_.contains("embedding.weight") ? file_.matrix("embedding.weight") : weight_),
        layers_{LstmCell(file_, "lstm", "l0"), LstmCell(file_, "lstm", "l1")},
        vocabulary_(file_, "vocab.utf8", vocab()) {}

  std::size_t vocab() const { return static_cast<std::size_t>(weight_.rows()); }
  Eigen::Index dim() const { return weight_.cols(); }
  const SafetensorsFile& file() const { return file_; }
  const std::string& word(TokenId id) const { return vocabulary_.word(id); }
  TokenId token(const std::string& word) const { return vocabulary_.token(word); }

  /// The softmax layer; it borrows this model's weights.
  SoftmaxLayer layer() const { return SoftmaxLayer::borrow(weight_, bias_); }

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
  SafetensorsFile file_;
  RowMajorMatrix weight_;
  Eigen::VectorXf bias_;
  RowMajorMatrix embedding_;
  std::array<LstmCell, kLayers> layers_;
  Vocabulary vocabulary_;
};

}  // namespace topksoftmax::examples
