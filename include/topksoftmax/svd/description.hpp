// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include "topksoftmax/config.hpp"
#include "topksoftmax/registry/axes.hpp"
#include "topksoftmax/registry/description.hpp"
#include "topksoftmax/svd/build.hpp"
#include "topksoftmax/svd/svd_softmax.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

inline BackendDescription describe_svd() {
  const auto build = [](const BuildMaterial& from, const SvdSoftmaxOptions& options) {
    return SvdSoftmax::build(from.layer, options, from.executor);
  };
  const axis::Values swept_widths = [](const SoftmaxLayer& layer, std::size_t) {
    return geometric(axis::share(layer.dim(), 16, 1), axis::share(layer.dim(), 2, 2), 6);
  };
  const axis::Values swept_refined = [](const SoftmaxLayer& layer, std::size_t) {
    return geometric(10, axis::share(layer.vocab(), 10, 20), 8);
  };
  const axis::Values tried_widths = [](const SoftmaxLayer& layer, std::size_t) {
    return geometric(axis::share_within(layer.dim(), 8, 1), axis::share_within(layer.dim(), 2, 1), 3);
  };
  const axis::Values tried_refined = [](const SoftmaxLayer& layer, std::size_t k) {
    return geometric(std::min(k, layer.vocab()), axis::share_within(layer.vocab(), 10, 20), 8);
  };
  return {.name = "svd",
          .kind = std::string(SvdSoftmax::kind),
          .summary = "SVD-softmax: low-rank previews of all logits, the best of them refined",
          .advice = {.place = 50,
                     .names = "`SvdSoftmax`",
                     .answers = "approximate; log Z counts every token, most of them by a low-rank logit",
                     .learns_from = "nothing",
                     .take_when = "rows are nearly low-rank, and log Z must be close"},
          .builder =
              builder<SvdSoftmaxOptions>({"SvdSoftmax::build", "layer", "topksoftmax/svd/build.hpp"}, build),
          .loader = &load_as<SvdSoftmax>,
          .axes = {{.option = "preview_width", .values = swept_widths},
                   {.option = "refine_width", .values = swept_refined, .effort = axis::value_itself}},
          .tuning = TuningPlan{.turn = 20,
                               .searches = {{.option = "preview_width", .values = tried_widths}},
                               .efforts = OptionAxis{.option = "refine_width",
                                                     .values = tried_refined,
                                                     .effort = axis::value_itself}},
          .tensors = {{"directions", "F32", "[width, d]", "the leading columns of V, transposed"},
                      {"tokens", "F32", "[V, width]", "the leading columns of UΣ"}}};
}

}  // namespace TOPKSOFTMAX_NAMESPACE
