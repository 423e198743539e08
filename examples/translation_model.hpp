// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "linear.hpp"
#include "lstm_cell.hpp"
#include "sized_matrix.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/decoding/beam_search.hpp"
#include "topksoftmax/io/head_file.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/rows/float32_copy.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"
#include "vocabulary.hpp"

namespace topksoftmax::examples {

/// A translation model: a bidirectional LSTM encoder, an LSTM decoder, attention. Its file holds
/// embedding.source [Vs×d], embedding.target [V×d], encoder.* (d/2 a side) and decoder.* in PyTorch's layout,
/// attention.weight [d×d], combine.weight [d×2d], the softmax layer as head files have it, vocab.source and
/// vocab.target; tokens 0 to 3 are <pad>, <unk>, <s> and </s>.
class TranslationModel {
 public:
  static constexpr TokenId kPadding = 0;
  static constexpr TokenId kUnknown = 1;
  static constexpr TokenId kStart = 2;
  static constexpr TokenId kEnd = 3;

  /// Throws Error, which names the tensor, where one is missing or has another shape or a value that is not
  /// finite.
  explicit TranslationModel(const std::filesystem::path& path)
      : file_(SafetensorsFile::open(path)),
        layer_(float32_copy(HeadFile::open(path).layer())),
        source_(sized_matrix(file_, "embedding.source", {SafetensorsFile::any_size, layer_.dim()})),
        target_(sized_matrix(file_, "embedding.target", {layer_.vocab(), layer_.dim()})),
        forward_(file_, "encoder", "l0", layer_.dim(), layer_.dim() / 2),
        backward_(file_, "encoder", "l0_reverse", layer_.dim(), layer_.dim() / 2),
        decoder_(file_, "decoder", "l0", layer_.dim(), layer_.dim()),
        attention_(file_, "attention.weight", {}, {layer_.dim(), layer_.dim()}),
        combine_(file_, "combine.weight", {}, {layer_.dim(), 2 * layer_.dim()}),
        source_words_(file_, "vocab.source", static_cast<std::size_t>(source_.rows())),
        target_words_(file_, "vocab.target", layer_.vocab()) {
    if (dim() % 2 != 0) {
      throw file_.error("weight",
                        "has rows of " + std::to_string(dim()) + " values, no two halves for the encoder");
    }
    for (const char* const embedding : {"embedding.source", "embedding.target"}) {
      const std::size_t rows = file_.tensor(embedding).shape[0];
      if (rows > static_cast<std::size_t>(kEnd)) continue;
      throw file_.error(embedding, "has " + std::to_string(rows) +
                                       " rows; it must have one for </s>, token " + std::to_string(kEnd));
    }
  }

  Eigen::Index dim() const { return static_cast<Eigen::Index>(layer_.dim()); }

  /// The softmax layer in float32; it shares this model's weights.
  const SoftmaxLayer& layer() const { return layer_; }

  std::vector<TokenId> source_tokens(std::span<const std::string> words) const {
    std::vector<TokenId> tokens;
    for (const std::string& word : words) tokens.push_back(source_words_.token(word, kUnknown));
    return tokens;
  }
  const std::string& target_word(TokenId id) const { return target_words_.word(id); }

  /// A sentence as the decoder sees it.
  struct Encoded {
    RowMajorMatrix memory;  ///< [S×d], forward and backward side by side
    LstmState state;        ///< [1×d], what the decoder begins with
  };

  Encoded encode(std::span<const TokenId> tokens) const {
    const auto length = static_cast<Eigen::Index>(tokens.size());
    RowMajorMatrix input(length, source_.cols());
    for (Eigen::Index t = 0; t < length; ++t) input.row(t) = source_.row(tokens[static_cast<std::size_t>(t)]);
    const Eigen::Index side = forward_.dim();
    Encoded encoded = {RowMajorMatrix(length, 2 * side), LstmState::zero(1, 2 * side)};
    encode_side(forward_, input, false, 0, encoded);
    encode_side(backward_, input, true, side, encoded);
    return encoded;
  }

  /// What the decoder remembers of its hypotheses, a row each.
  struct Decoding {
    std::vector<std::shared_ptr<const RowMajorMatrix>> memories;  ///< of the sentence of each
    LstmState state;
    RowMajorMatrix contexts;
  };

  /// The hypotheses before the start token, one for each sentence.
  Decoding start(std::vector<Encoded> sentences) const {
    const auto count = static_cast<Eigen::Index>(sentences.size());
    Decoding decoding;
    decoding.state = LstmState::zero(count, dim());
    for (Eigen::Index s = 0; s < count; ++s) {
      Encoded& sentence = sentences[static_cast<std::size_t>(s)];
      decoding.state.hidden.row(s) = sentence.state.hidden;
      decoding.state.cell.row(s) = sentence.state.cell;
      decoding.memories.push_back(std::make_shared<const RowMajorMatrix>(std::move(sentence.memory)));
    }
    return decoding;
  }

  /// Reads a token of every row; row i goes on from row rows[i].parent of the step before. The contexts live
  /// in `decoding`.
  Contexts step(std::span<const BeamRow> rows, Decoding& decoding) const {
    const auto count = static_cast<Eigen::Index>(rows.size());
    Decoding next;
    next.state = LstmState::zero(count, dim());
    RowMajorMatrix input(count, target_.cols());
    for (Eigen::Index i = 0; i < count; ++i) {
      const BeamRow& row = rows[static_cast<std::size_t>(i)];
      const auto parent = static_cast<Eigen::Index>(row.parent);
      input.row(i) = target_.row(row.token);
      next.state.hidden.row(i) = decoding.state.hidden.row(parent);
      next.state.cell.row(i) = decoding.state.cell.row(parent);
      next.memories.push_back(decoding.memories[row.parent]);
    }
    RowMajorMatrix gates;
    decoder_.read(input, gates);
    decoder_.step(gates, next.state);
    attend(next);
    decoding = std::move(next);
    return Contexts::of(decoding.contexts);
  }

 private:
  /// One direction of the encoder, into the columns from `first` on.
  static void encode_side(const LstmCell& cell, const RowMajorMatrix& input, bool reverse, Eigen::Index first,
                          Encoded& encoded) {
    const Eigen::Index length = input.rows();
    LstmState state = LstmState::zero(1, cell.dim());
    RowMajorMatrix gates;
    cell.read(input, gates);
    for (Eigen::Index n = 0; n < length; ++n) {
      const Eigen::Index t = reverse ? length - 1 - n : n;
      cell.step(gates.row(t), state);
      encoded.memory.row(t).segment(first, cell.dim()) = state.hidden;
    }
    encoded.state.hidden.row(0).segment(first, cell.dim()) = state.hidden;
    encoded.state.cell.row(0).segment(first, cell.dim()) = state.cell;
  }

  /// h = tanh(combine · [c; o]), c the sum of the memory weighted by softmax(memory · (attention · o)).
  void attend(Decoding& decoding) const {
    const RowMajorMatrix& o = decoding.state.hidden;
    RowMajorMatrix keys;
    attention_.apply(o, keys);
    RowMajorMatrix both(o.rows(), 2 * dim());
    for (Eigen::Index i = 0; i < o.rows(); ++i) {
      const RowMajorMatrix& memory = *decoding.memories[static_cast<std::size_t>(i)];
      Eigen::VectorXf scores = memory * keys.row(i).transpose();
      scores = (scores.array() - scores.maxCoeff()).exp();
      both.row(i).head(dim()).noalias() = (scores / scores.sum()).transpose() * memory;
    }
    both.rightCols(dim()) = o;
    combine_.apply(both, decoding.contexts);
    decoding.contexts = decoding.contexts.array().tanh();
  }

  SafetensorsFile file_;
  SoftmaxLayer layer_;
  RowMajorMatrix source_;
  RowMajorMatrix target_;
  LstmCell forward_;
  LstmCell backward_;
  LstmCell decoder_;
  Linear attention_;
  Linear combine_;
  Vocabulary source_words_;
  Vocabulary target_words_;
};

}  // namespace topksoftmax::examples
