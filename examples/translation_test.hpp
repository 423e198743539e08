// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "bleu.hpp"
#include "text.hpp"
#include "topksoftmax/error.hpp"

namespace topksoftmax::examples {

/// A sentence that a translation model is tested with.
struct TestSentence {
  std::vector<std::string> source;
  std::vector<std::string> reference;
  std::string greedy;  ///< what the model itself writes
};

/// The first `limit` sentences of a file with a sentence a line: source, reference and the model's own greedy
/// translation, separated by tabs. Throws Error where there is none.
inline std::vector<TestSentence> read_test_sentences(const std::string& path, std::size_t limit) {
  std::ifstream file(path);
  if (!file) throw Error(path + ": cannot be read");
  std::vector<TestSentence> sentences;
  for (std::string line; sentences.size() < limit && std::getline(file, line);) {
    std::istringstream columns(line);
    std::string source, reference, greedy;
    if (!std::getline(columns, source, '\t') || !std::getline(columns, reference, '\t')) {
      throw Error(path + ": line " + std::to_string(sentences.size() + 1) +
                  " has no source and reference, separated by a tab");
    }
    std::getline(columns, greedy, '\t');
    sentences.push_back({words_of(source), words_of(reference), greedy});
  }
  if (sentences.empty()) throw Error(path + ": there is no sentence");
  return sentences;
}

/// Words of each sentence.
using Translations = std::vector<std::vector<std::string>>;

/// BLEU of the translations against the references.
inline double bleu(const Translations& translations, const std::vector<TestSentence>& sentences) {
  Bleu score;
  for (std::size_t s = 0; s < sentences.size(); ++s) score.add(translations[s], sentences[s].reference);
  return score.value();
}

inline std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

}  // namespace topksoftmax::examples
