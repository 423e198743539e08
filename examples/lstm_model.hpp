// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <array>
#include <cmath>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "topksoftmax/error.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax::examples {

/// A word-level LSTM language model of two layers, read from a language model file (its tensors are listed in
/// the README). It runs many streams of text side by side: one row of every matrix a stream.
class LstmModel {
 public:
  static constexpr std::size_t kLayers = 2;

  /// What the model remembers of each stream.
  struct State {
    std::array<RowMajorMatrix, kLayers> hidden;  ///< [streams×d]
    std::array<RowMajorMatrix, kLayers> cell;    ///< [streams×d]
  };

  explicit LstmModel(const std::filesystem::path& path) : file_(SafetensorsFile::open(path)) {
    weight_ = file_.matrix("weight");
    bias_ = file_.vector("bias");
    embedding_ = file_.contains("embedding.weight") ? file_.matrix("embedding.weight") : weight_;
    for (std::size_t l = 0; l < kLayers; ++l) {
      const std::string suffix = "_l" + std::to_string(l);
      layers_[l].input = file_.matrix("lstm.weight_ih" + suffix);
      layers_[l].recurrent = file_.matrix("lstm.weight_hh" + suffix);
      layers_[l].bias = file_.vector("lstm.bias_ih" + suffix) + file_.vector("lstm.bias_hh" + suffix);
    }
    std::string word;
    for (const std::byte c : file_.tensor("vocab.utf8").bytes) {
      if (static_cast<char>(c) == '\n') {
        words_.push_back(std::move(word));
        word.clear();
      } else {
        word.push_back(static_cast<char>(c));
      }
    }
    if (!word.empty()) words_.push_back(std::move(word));
    if (words_.size() != vocab()) {
      throw file_.error("vocab.utf8", "has " + std::to_string(words_.size()) + " words, weight has " +
                                          std::to_string(vocab()) + " rows");
    }
  }

  std::size_t vocab() const { return static_cast<std::size_t>(weight_.rows()); }
  Eigen::Index dim() const { return weight_.cols(); }
  const SafetensorsFile& file() const { return file_; }
  const std::string& word(TokenId id) const { return words_[static_cast<std::size_t>(id)]; }

  /// The token of a word; Error if it is not in the vocabulary.
  TokenId token(const std::string& word) const {
    for (std::size_t id = 0; id < words_.size(); ++id) {
      if (words_[id] == word) return static_cast<TokenId>(id);
    }
    throw Error("the word \"" + word + "\" is not in the vocabulary");
  }

  /// The softmax layer; it borrows this model's weights.
  SoftmaxLayer layer() const { return SoftmaxLayer::borrow(weight_, bias_); }

  /// Streams that have read nothing yet.
  State start(Eigen::Index streams) const {
    State state;
    for (std::size_t l = 0; l < kLayers; ++l) {
      state.hidden[l] = state.cell[l] = RowMajorMatrix::Zero(streams, dim());
    }
    return state;
  }

  /// Reads one token of every stream; returns the contexts h [streams×d] that the next tokens are predicted
  /// from.
  const RowMajorMatrix& read(const std::vector<TokenId>& tokens, State& state) const {
    RowMajorMatrix input(static_cast<Eigen::Index>(tokens.size()), embedding_.cols());
    for (std::size_t i = 0; i < tokens.size(); ++i)
      input.row(static_cast<Eigen::Index>(i)) = embedding_.row(tokens[i]);
    for (std::size_t l = 0; l < kLayers; ++l) {
      step(layers_[l], l == 0 ? input : state.hidden[l - 1], state.hidden[l], state.cell[l]);
    }
    return state.hidden.back();
  }

 private:
  /// PyTorch's layout: the gates i, f, g, o one below the other.
  struct Layer {
    RowMajorMatrix input;      ///< [4d×d]
    RowMajorMatrix recurrent;  ///< [4d×d]
    Eigen::VectorXf bias;      ///< [4d], both of PyTorch's together
  };

  static auto sigmoid(const auto& x) { return (1.0F + (-x.array()).exp()).inverse(); }

  static void step(const Layer& layer, const RowMajorMatrix& input, RowMajorMatrix& hidden,
                   RowMajorMatrix& cell) {
    const Eigen::Index d = hidden.cols();
    RowMajorMatrix gates = input * layer.input.transpose();
    gates.noalias() += hidden * layer.recurrent.transpose();
    gates.rowwise() += layer.bias.transpose();
    const auto i = sigmoid(gates.leftCols(d));
    const auto f = sigmoid(gates.middleCols(d, d));
    const auto g = gates.middleCols(2 * d, d).array().tanh();
    const auto o = sigmoid(gates.rightCols(d));
    cell = f * cell.array() + i * g;
    hidden = o * cell.array().tanh();
  }

  SafetensorsFile file_;
  RowMajorMatrix weight_;
  Eigen::VectorXf bias_;
  RowMajorMatrix embedding_;
  std::array<Layer, kLayers> layers_;
  std::vector<std::string> words_;
};

}  // namespace topksoftmax::examples
