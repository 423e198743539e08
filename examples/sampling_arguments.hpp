// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "topksoftmax/decoding/penalties.hpp"
#include "topksoftmax/decoding/sampling_options.hpp"

namespace topksoftmax::examples {

/// Options of a command line for what tokens are drawn from: `count` is the help of --top-k.
inline CLI::Option* add_sampling_options(CLI::App& app, SamplingOptions& sampling, const std::string& count) {
  app.add_option("--temperature", sampling.temperature, "Logits are divided by it; 0 is greedy")
      ->capture_default_str();
  CLI::Option* const top_k =
      app.add_option("--top-k", sampling.top_k, count)->check(CLI::NonNegativeNumber)->capture_default_str();
  app.add_option("--top-p", sampling.top_p, "The nucleus: the likeliest that reach this probability")
      ->capture_default_str();
  app.add_option("--min-p", sampling.min_p, "As a part of the likeliest one's probability")
      ->capture_default_str();
  return top_k;
}

/// The steps that fewer engines have, and the order of all.
inline void add_further_sampling_options(CLI::App& app, SamplingOptions& sampling) {
  app.add_option("--typical-p", sampling.typical_p,
                 "Those nearest to the entropy that reach this probability")
      ->capture_default_str();
  app.add_option("--top-n-sigma", sampling.top_n_sigma, "Standard deviations below the best logit; 0 is all")
      ->capture_default_str();
  app.add_option("--xtc-probability", sampling.xtc_probability, "Of leaving out the likeliest ones")
      ->capture_default_str();
  app.add_option("--xtc-threshold", sampling.xtc_threshold, "The probability from which these are likely")
      ->capture_default_str();
  app.add_option("--log-z-error", sampling.log_z_error,
                 "How far off log Z may be that top-p and XTC cut by; 0 is exact")
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--order",
         [&sampling](const std::string& name) {
           sampling.order = name == "llama.cpp" ? SamplingOrder::llama_cpp : SamplingOrder::hugging_face;
         },
         "Whose order these steps are taken in")
      ->check(CLI::IsMember({"hugging-face", "llama.cpp"}))
      ->default_str("hugging-face");
}

/// What a token's logit loses for having been written before.
inline void add_penalties(CLI::App& app, Penalties& penalties) {
  app.add_option("--repetition-penalty", penalties.repetition, "Divides the logit of a word written before")
      ->capture_default_str();
  app.add_option("--presence-penalty", penalties.presence, "Taken off once")->capture_default_str();
  app.add_option("--frequency-penalty", penalties.frequency, "Taken off for each time it was written")
      ->capture_default_str();
}

}  // namespace topksoftmax::examples
