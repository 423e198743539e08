// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "topksoftmax/contexts.hpp"
#include "topksoftmax/decoding/beam_search.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/types.hpp"
#include "vocabulary.hpp"

namespace topksoftmax::examples {

/// The translation model of translation_model.hpp on LibTorch, in float32, for batches of sentences.
class TorchTranslationModel {
 public:
  static constexpr TokenId kUnknown = 1;
  static constexpr TokenId kStart = 2;
  static constexpr TokenId kEnd = 3;

  explicit TorchTranslationModel(const std::filesystem::path& path)
      : TorchTranslationModel(SafetensorsFile::open(path)) {}

  /// The output layer's weight [V×d] and bias [V].
  const at::Tensor& weight() const { return weight_; }
  const at::Tensor& bias() const { return bias_; }

  std::vector<std::int64_t> source_tokens(std::span<const std::string> words) const {
    std::vector<std::int64_t> tokens;
    for (const std::string& word : words) tokens.push_back(source_words_.token(word, kUnknown));
    return tokens;
  }
  const std::string& target_word(TokenId id) const { return target_words_.word(id); }

  /// What the decoder remembers.
  struct Decoding {
    std::vector<std::size_t> sentences;  ///< that go on, B
    at::Tensor memory;                   ///< of each, [B×S×d]
    at::Tensor padding;       ///< −∞ where a shorter sentence has no word, otherwise 0: [B×1×S]
    at::Tensor hidden, cell;  ///< a row for each hypothesis, [R×d]
    at::Tensor contexts;      ///< likewise
  };

  /// The hypotheses before the start token, one for each sentence; the longest sentence comes first.
  Decoding start(std::span<const std::vector<std::int64_t>> sentences) const {
    const auto count = static_cast<std::int64_t>(sentences.size());
    const auto longest = static_cast<std::int64_t>(sentences.front().size());
    at::Tensor tokens = at::zeros({count, longest}, at::kLong);
    at::Tensor lengths = at::empty({count}, at::kLong);
    Decoding decoding;
    decoding.padding = at::full({count, 1, longest}, -std::numeric_limits<float>::infinity());
    for (std::int64_t s = 0; s < count; ++s) {
      const std::vector<std::int64_t>& sentence = sentences[static_cast<std::size_t>(s)];
      const auto length = static_cast<std::int64_t>(sentence.size());
      std::copy(sentence.begin(), sentence.end(), tokens.data_ptr<std::int64_t>() + s * longest);
      lengths.data_ptr<std::int64_t>()[s] = length;
      decoding.padding.select(0, s).slice(1, 0, length).zero_();
      decoding.sentences.push_back(static_cast<std::size_t>(s));
    }
    const auto [words, in_step] = at::_pack_padded_sequence(at::embedding(source_, tokens), lengths, true);
    const at::Tensor nothing = at::zeros({2, count, weight_.size(1) / 2});
    const auto [outputs, hidden, cell] =
        at::lstm(words, in_step, {nothing, nothing}, encoder_, true, 1, 0.0, false, true);
    decoding.memory = std::get<0>(at::_pad_packed_sequence(outputs, in_step, true, 0.0, longest));
    decoding.hidden = at::cat({hidden[0], hidden[1]}, 1);
    decoding.cell = at::cat({cell[0], cell[1]}, 1);
    return decoding;
  }

  /// Reads a token of every row; row i goes on from row rows[i].parent of the step before. The contexts are a
  /// view of the tensor in `decoding`.
  Contexts step(std::span<const BeamRow> rows, Decoding& decoding) const {
    const auto count = static_cast<std::int64_t>(rows.size());
    at::Tensor tokens = at::empty({count}, at::kLong);
    at::Tensor parents = at::empty({count}, at::kLong);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      tokens.data_ptr<std::int64_t>()[i] = rows[i].token;
      parents.data_ptr<std::int64_t>()[i] = static_cast<std::int64_t>(rows[i].parent);
    }
    std::tie(decoding.hidden, decoding.cell) =
        at::lstm_cell(at::embedding(target_, tokens),
                      {decoding.hidden.index_select(0, parents), decoding.cell.index_select(0, parents)},
                      decoder_[0], decoder_[1], decoder_[2], decoder_[3]);
    const at::Tensor attended = attend(rows, decoding);
    decoding.contexts = at::linear(at::cat({attended, decoding.hidden}, 1), combine_).tanh_();
    return {decoding.contexts.data_ptr<float>(), rows.size(), static_cast<std::size_t>(weight_.size(1)),
            static_cast<std::size_t>(decoding.contexts.stride(0))};
  }

 private:
  explicit TorchTranslationModel(const SafetensorsFile& file)
      : weight_(read(file, "weight")),
        bias_(read(file, "bias")),
        source_(read(file, "embedding.source")),
        target_(read(file, "embedding.target")),
        attention_(read(file, "attention.weight")),
        combine_(read(file, "combine.weight")),
        source_words_(file, "vocab.source", static_cast<std::size_t>(source_.size(0))),
        target_words_(file, "vocab.target", static_cast<std::size_t>(weight_.size(0))) {
    for (const char* const part : {"weight_ih_", "weight_hh_", "bias_ih_", "bias_hh_"}) {
      decoder_.push_back(read(file, std::string("decoder.") + part + "l0"));
    }
    for (const char* const direction : {"l0", "l0_reverse"}) {
      for (const char* const part : {"weight_ih_", "weight_hh_", "bias_ih_", "bias_hh_"}) {
        encoder_.push_back(read(file, std::string("encoder.") + part + direction));
      }
    }
  }

  static at::Tensor read(const SafetensorsFile& file, const std::string& name) {
    const auto& shape = file.tensor(name).shape;
    at::Tensor tensor = at::empty(std::vector<std::int64_t>(shape.begin(), shape.end()), at::kFloat);
    file.read(name, std::span(tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())));
    return tensor;
  }

  /// What each row sees of its sentence, [R×d]. The rows of a sentence are adjacent, and are multiplied with
  /// its memory together: as many places a sentence as the one with the most rows needs.
  at::Tensor attend(std::span<const BeamRow> rows, Decoding& decoding) const {
    std::vector<std::size_t> sentences;
    std::vector<std::int64_t> first_rows;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (i > 0 && rows[i].sentence == sentences.back()) continue;
      sentences.push_back(rows[i].sentence);
      first_rows.push_back(static_cast<std::int64_t>(i));
    }
    first_rows.push_back(static_cast<std::int64_t>(rows.size()));
    forget_others(sentences, decoding);

    const auto batch = static_cast<std::int64_t>(sentences.size());
    std::int64_t width = 0;
    for (std::size_t s = 0; s < sentences.size(); ++s) {
      width = std::max(width, first_rows[s + 1] - first_rows[s]);
    }
    at::Tensor places = at::empty({static_cast<std::int64_t>(rows.size())}, at::kLong);
    for (std::size_t s = 0; s < sentences.size(); ++s) {
      for (std::int64_t row = first_rows[s]; row < first_rows[s + 1]; ++row) {
        places.data_ptr<std::int64_t>()[row] = static_cast<std::int64_t>(s) * width + row - first_rows[s];
      }
    }
    const bool full = batch * width == places.size(0);

    const std::int64_t dim = weight_.size(1);
    at::Tensor keys = at::linear(decoding.hidden, attention_);
    if (!full) keys = at::zeros({batch * width, dim}).index_copy_(0, places, keys);
    at::Tensor scores = at::bmm(keys.view({batch, width, dim}), decoding.memory.transpose(1, 2));
    scores = at::softmax(scores.add_(decoding.padding), 2);
    const at::Tensor attended = at::bmm(scores, decoding.memory).view({batch * width, dim});
    return full ? attended : attended.index_select(0, places);
  }

  /// Keeps the memory of these sentences alone, which are in the order in which they came.
  static void forget_others(const std::vector<std::size_t>& sentences, Decoding& decoding) {
    if (sentences.size() == decoding.sentences.size()) return;
    at::Tensor kept = at::empty({static_cast<std::int64_t>(sentences.size())}, at::kLong);
    std::int64_t at_old = 0;
    for (std::size_t s = 0; s < sentences.size(); ++s, ++at_old) {
      while (decoding.sentences[static_cast<std::size_t>(at_old)] != sentences[s]) ++at_old;
      kept.data_ptr<std::int64_t>()[s] = at_old;
    }
    decoding.memory = decoding.memory.index_select(0, kept);
    decoding.padding = decoding.padding.index_select(0, kept);
    decoding.sentences = sentences;
  }

  at::Tensor weight_, bias_, source_, target_, attention_, combine_;
  std::vector<at::Tensor> encoder_;  ///< as at::lstm takes them: one direction after the other
  std::vector<at::Tensor> decoder_;  ///< as at::lstm_cell does
  Vocabulary source_words_;
  Vocabulary target_words_;
};

}  // namespace topksoftmax::examples
