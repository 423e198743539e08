// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "harness/command_line/command.hpp"
#include "harness/experiments/sampling.hpp"
#include "harness/heads/head_source.hpp"
#include "harness/measuring/measurer.hpp"

namespace topksoftmax::bench {

/// What is measured: a table of backends, or something instead.
enum class Measurand : std::uint8_t {
  table,
  sweep,     ///< each backend at every value of its own trade-off
  ablation,  ///< an experiment of the papers
  sampling,  ///< tokens are drawn
  cursor,    ///< the next best tokens are taken on demand
  ranks,     ///< slices of the vocabulary are asked, on the ranks of MPI
  // On a language model instead of its softmax layer alone:
  decode,
  perplexity,
  batching
};

/// The option that asks for what takes a language model.
const char* option_of(Measurand what);

/// Whether it takes a language model.
inline bool takes_language_model(Measurand what) {
  return what >= Measurand::decode;
}

/// What is to be measured.
struct MeasureRequest {
  HeadSource head;
  std::string backends = "all";
  std::vector<std::string> settings;  ///< of --set
  std::string copied_as;              ///< a type that the layer is stored as besides its own; empty: none
  MeasureOptions measure;
  Measurand what = Measurand::table;
  std::string ablation;                    ///< the name of one
  Drawing drawn_by;                        ///< of sampling
  std::vector<std::size_t> cursor_tokens;  ///< how many are taken
  std::filesystem::path text;              ///< of --text, for the perplexity; empty: the model writes one
  std::filesystem::path json;              ///< empty: none is written
  std::filesystem::path html;              ///< likewise
};

/// Measures it. Throws UsageError and Error.
void measure(const MeasureRequest& request, const Invocation& invocation);

}  // namespace topksoftmax::bench
