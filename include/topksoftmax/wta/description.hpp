// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/registry/axes.hpp"
#include "topksoftmax/registry/description.hpp"
#include "topksoftmax/registry/outside_tensors.hpp"
#include "topksoftmax/wta/build.hpp"
#include "topksoftmax/wta/tensors.hpp"
#include "topksoftmax/wta/wta_lsh.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

inline BackendDescription describe_wta_lsh() {
  const auto build = [](const BuildMaterial& from, const WtaLshOptions& options) {
    return WtaLsh::build(from.layer, from.contexts, options, from.executor);
  };
  const axis::Values frequent = [](const SoftmaxLayer& layer, std::size_t) {
    return std::vector<std::size_t>{axis::share_within(layer.vocab(), 50, 1),
                                    axis::share_within(layer.vocab(), 10, 1)};
  };
  const auto effort_of_threshold = [](std::size_t threshold, const Settings& values) {
    return axis::whole(values, "bands") + 1 - threshold;
  };
  std::vector<TensorDescription> tensors = detail::wta_tensors();
  tensors.push_back({"frequent", "U64", "[⌈V/64⌉]", "the most frequent tokens, a bit each"});
  return {
      .name = "wta-lsh",
      .kind = std::string(WtaLsh::kind),
      .summary = "Winner-take-all hashing: one list for a batch, and the most frequent tokens",
      .advice = {.place = 90,
                 .names = "`WtaLsh`",
                 .answers = "approximate; a batch shares one candidate list, which may only add tokens to a "
                            "query's",
                 .learns_from = "nothing; contexts help log Z, token counts help",
                 .take_when = "there are no contexts to learn from"},
      .traits = {.shares_batches = true},
      .builder =
          builder<WtaLshOptions>({"WtaLsh::build", "layer, contexts", "topksoftmax/wta/build.hpp"}, build),
      .loader = &load_as<WtaLsh>,
      .axes = {{.option = "threshold", .values = axis::listed({3, 4, 5, 6, 8, 12})},
               {.option = "top_frequent", .values = axis::vocab_shares(50, 5, 5)}},
      .tuning = TuningPlan{.turn = 60,
                           .searches = {{.option = "top_frequent", .values = frequent}},
                           .efforts = OptionAxis{.option = "threshold",
                                                 .values = axis::listed({16, 12, 8, 6, 5, 4, 3}),
                                                 .effort = effort_of_threshold}},
      .wrapped = {.settings = {{"outside_sample", "0"}}},
      .tensors = detail::with_outside_mass(std::move(tensors), "1")};
}

}  // namespace TOPKSOFTMAX_NAMESPACE
