// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "topksoftmax/config.hpp"
#include "topksoftmax/quantized/build.hpp"
#include "topksoftmax/quantized/quantized.hpp"
#include "topksoftmax/registry/axes.hpp"
#include "topksoftmax/registry/description.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

inline BackendDescription describe_quantized() {
  const auto build = [](const BuildMaterial& from, const QuantizedOptions& options) {
    return Quantized::build(from.layer, options, from.executor);
  };
  return {.name = "quantized",
          .kind = std::string(Quantized::kind),
          .summary = "The scan of 8-bit rows, the best of it in full precision",
          .advice = {.place = 110,
                     .names = "`Quantized`",
                     .answers =
                         "approximate: an 8-bit scan, the best in full precision; log Z counts every token",
                     .learns_from = "nothing",
                     .take_when = "contexts change all the time, and the layer is large"},
          .builder = builder<QuantizedOptions>(
              {"Quantized::build", "layer", "topksoftmax/quantized/build.hpp"}, build),
          .loader = &load_as<Quantized>,
          .axes = {{.option = "refine_width",
                    .values = axis::listed({10, 16, 32, 64, 128}),
                    .effort = axis::value_itself}},
          .tuning = TuningPlan{.turn = 2, .always = true},
          .tensors = {{"prefixes", "U8", "[⌈V/16⌉, *]", "blocks of 16 rows: see kernels::PrefixBlocks"}}};
}

}  // namespace TOPKSOFTMAX_NAMESPACE
