// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "harness/command.hpp"
#include "harness/head_source.hpp"
#include "harness/measurer.hpp"
#include "topksoftmax/decoding/sampling_options.hpp"

namespace topksoftmax::bench {

/// What is measured on a language model instead of its softmax layer alone.
enum class LanguageModelExperiment : std::uint8_t { none, decode, perplexity, batching };

/// What is to be measured.
struct MeasureRequest {
  HeadSource head;
  std::string backends = "all";
  std::vector<std::string> settings;  ///< of --set
  std::string copied_as;              ///< a type that the layer is stored as besides its own; empty: none
  MeasureOptions measure;
  bool sweep = false;        ///< each backend at every value of its own trade-off
  std::string ablation;      ///< its name; empty: none
  bool sampling = false;     ///< tokens are drawn instead of asked for
  SamplingOptions drawn_by;  ///< the options of that
  bool ranks = false;        ///< slices of the vocabulary are asked, on the ranks of MPI
  LanguageModelExperiment experiment = LanguageModelExperiment::none;
  std::filesystem::path text;  ///< of --text, for the perplexity; empty: the model writes one
  std::filesystem::path json;  ///< empty: none is written
  std::filesystem::path html;  ///< likewise
};

/// Measures it. Throws UsageError and Error.
void measure(const MeasureRequest& request, const Invocation& invocation);

}  // namespace topksoftmax::bench
