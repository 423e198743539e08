// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "topksoftmax/config.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/registry/description.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Exact: what all others are judged by, so tune() does not try it.
inline BackendDescription describe_exact() {
  return {.name = "exact",
          .kind = std::string(Exact::kind),
          .summary = "The full softmax step by step, the ground truth of every precision",
          .advice = {.place = 130,
                     .names = "`Exact`",
                     .answers = "exact, step by step",
                     .learns_from = "nothing",
                     .take_when = "you want the ground truth"},
          .traits = {.exact = true, .scans_all = true},
          .builder = builder<NoOptions>(
              {"Exact::make", "layer", "topksoftmax/exact.hpp"},
              [](const BuildMaterial& from, NoOptions) { return Exact::make(from.layer); }),
          .loader = &load_as<Exact>,
          .tuning = std::nullopt};
}

inline BackendDescription describe_fused() {
  return {.name = "fused",
          .kind = std::string(Fused::kind),
          .summary = "The full softmax in one pass: bias, log-sum-exp and top-k fused",
          .advice = {.place = 120,
                     .names = "`Fused`",
                     .answers = "exact, with the exact log Z; a batch shares what is read",
                     .learns_from = "nothing",
                     .take_when = "contexts change all the time, k is large, or the layer small"},
          .traits = {.exact = true, .scans_all = true},
          .builder = builder<NoOptions>(
              {"Fused::make", "layer", "topksoftmax/fused.hpp"},
              [](const BuildMaterial& from, NoOptions) { return Fused::make(from.layer); }),
          .loader = &load_as<Fused>,
          .tuning = TuningPlan{.turn = 0, .always = true}};
}

}  // namespace TOPKSOFTMAX_NAMESPACE
