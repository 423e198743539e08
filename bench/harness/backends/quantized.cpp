// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/screeners/quantized.hpp"

#include "harness/backends.hpp"

namespace topksoftmax::bench {

Backend quantized() {
  using Options = QuantizedOptions;
  return make_backend<Options>(
      "quantized", "The scan of 8-bit rows, the best of it in full precision",
      {field("refine_width", &Options::refine_width,
             "tokens that are scored in full precision, at least 2k")},
      [](const Head& head, const Options& options, const TrainingProgress&) {
        return Quantized::build(head.layer, options);
      },
      {{.parameter = "refine_width",
        .values =
            [](const Head&) {
              return std::vector<std::size_t>{10, 16, 32, 64, 128};
            },
        .effort =
            [](const nlohmann::json& values) { return values.at("refine_width").get<std::size_t>(); }}});
}

}  // namespace topksoftmax::bench
