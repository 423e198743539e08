// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <span>

#include "harness/backends/choice.hpp"
#include "harness/heads/head.hpp"
#include "harness/text/progress.hpp"
#include "lstm_model.hpp"

namespace topksoftmax::bench {

/// What is measured on a language model whole, not on its softmax layer alone.
struct LanguageModelRequest {
  const examples::LstmModel& model;
  const Head& head;  ///< its layer, and contexts to learn from
  std::span<const Choice> choices;
  std::filesystem::path text;  ///< of --text; empty: none
  Progress& progress;
};

/// Opens a language model file. Its contexts.train, if it has none, are those that the model meets while it
/// writes.
Head language_model_head(const examples::LstmModel& model, Head head, Progress& progress);

// Each prints a table, and returns what it adds to the JSON: its rows, under its name.

/// --decode: tokens a second, end to end, by each decoder with each head. In "decoding".
nlohmann::ordered_json run_decode(const LanguageModelRequest& request, std::ostream& out);

/// --perplexity: L2S's Table 6. In "perplexity"; beside it, in "left_out", the backends without a row, which
/// have no candidates of their own.
nlohmann::ordered_json run_perplexity(const LanguageModelRequest& request, std::ostream& out);

/// --batching: batch sizes and time of mini-, maxi- and top-up batching on the lengths of the paper's
/// Table 1. In "batching".
nlohmann::ordered_json run_batching(const LanguageModelRequest& request, std::ostream& out);

}  // namespace topksoftmax::bench
