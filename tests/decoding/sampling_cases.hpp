// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/decoding/sampling_options.hpp"

namespace topksoftmax::testing {

/// Every cut alone, several at a time, and orders of them.
inline constexpr SamplingOrder kBackwards = {{SamplingStep::xtc, SamplingStep::min_p, SamplingStep::top_p,
                                              SamplingStep::typical_p, SamplingStep::temperature,
                                              SamplingStep::top_k, SamplingStep::top_n_sigma}};

inline const SamplingOptions kSamplingCases[] = {
    {},
    {.temperature = 0.7},
    {.temperature = 1.5},
    {.top_k = 10},
    {.top_p = 0.5},
    {.top_p = 0.9},
    {.top_p = 0.99},
    {.min_p = 0.05},
    {.min_p = 0.001},
    {.temperature = 0.8, .top_k = 40, .top_p = 0.9, .min_p = 0.02},
    {.temperature = 1.3, .top_p = 0.8},
    {.temperature = 0.5, .top_p = 0.95},
    {.temperature = 0.6, .top_p = 0.9, .order = SamplingOrder::llama_cpp},
    {.temperature = 1.5, .top_k = 40, .top_p = 0.95, .min_p = 0.05, .order = SamplingOrder::llama_cpp},
    {.temperature = 0.7, .min_p = 0.1, .order = SamplingOrder::llama_cpp},
    {.temperature = 1.4, .order = SamplingOrder::llama_cpp},
    {.temperature = 1e-3},
    {.temperature = 50.0},
    {.typical_p = 0.5},
    {.temperature = 0.8, .typical_p = 0.2},
    {.top_k = 30, .typical_p = 0.7},
    {.top_n_sigma = 2.0},
    {.temperature = 1.5, .top_k = 50, .top_n_sigma = 1.0, .order = SamplingOrder::llama_cpp},
    {.temperature = 0.5, .top_k = 50, .top_n_sigma = 0.7},
    {.top_p = 0.9, .top_n_sigma = 0.8},
    {.min_p = 0.02, .typical_p = 0.6},
    {.temperature = 0.8,
     .top_p = 0.9,
     .typical_p = 0.8,
     .top_n_sigma = 1.5,
     .order = SamplingOrder::llama_cpp},
    {.top_n_sigma = 1.2, .xtc_probability = 0.5, .xtc_threshold = 0.05, .order = SamplingOrder::llama_cpp},
    {.xtc_probability = 1.0, .xtc_threshold = 0.03},
    {.xtc_probability = 0.5, .xtc_threshold = 0.05},
    {.temperature = 0.7, .top_p = 0.95, .xtc_probability = 0.5, .xtc_threshold = 0.1},
    {.top_k = 20, .xtc_probability = 0.4, .xtc_threshold = 0.08, .order = SamplingOrder::llama_cpp},
    {.temperature = 0.8,
     .top_k = 20,
     .top_p = 0.8,
     .min_p = 0.01,
     .typical_p = 0.9,
     .xtc_probability = 0.5,
     .xtc_threshold = 0.04,
     .order = kBackwards},
    {.temperature = 0.02, .min_p = 0.2, .xtc_probability = 0.7, .xtc_threshold = 0.02, .order = kBackwards},
};

}  // namespace topksoftmax::testing
