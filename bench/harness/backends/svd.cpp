// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "harness/backends.hpp"
#include "topksoftmax/evaluation/sweep.hpp"
#include "topksoftmax/screeners/svd_softmax.hpp"

namespace topksoftmax::bench {

Backend svd() {
  using Options = SvdSoftmaxOptions;
  return make_backend<Options>(
      "svd", "SVD-softmax: low-rank previews of all logits, the best of them refined",
      {field("preview_width", &Options::preview_width,
             "W, directions that previews are made of; d/4 if null"),
       field("refine_width", &Options::refine_width, "N, tokens that are refined; V/50 if null")},
      [](const Head& head, const Options& options, const TrainingProgress&) {
        return SvdSoftmax::build(head.layer, options);
      },
      {{.parameter = "preview_width",
        .values =
            [](const Head& head) {
              return geometric(std::max<std::size_t>(head.layer.dim() / 16, 1),
                               std::max<std::size_t>(head.layer.dim() / 2, 2), 6);
            }},
       {.parameter = "refine_width",
        .values =
            [](const Head& head) {
              return geometric(10, std::max<std::size_t>(head.layer.vocab() / 10, 20), 8);
            },
        .effort =
            [](const nlohmann::json& values) { return values.at("refine_width").get<std::size_t>(); }}});
}

}  // namespace topksoftmax::bench
