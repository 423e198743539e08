// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include "topksoftmax/config.hpp"
#include "topksoftmax/fgd/build.hpp"
#include "topksoftmax/fgd/fgd.hpp"
#include "topksoftmax/fgd/options.hpp"
#include "topksoftmax/registry/axes.hpp"
#include "topksoftmax/registry/description.hpp"
#include "topksoftmax/registry/outside_tensors.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

inline BackendDescription describe_fgd() {
  const auto build = [](const BuildMaterial& from, const FgdOptions& options) {
    return Fgd::build(from.layer, from.contexts, options, from.executor);
  };
  const axis::Values queues = [](const SoftmaxLayer& layer, std::size_t k) {
    return geometric(std::min(std::max<std::size_t>(k, 10), layer.vocab()),
                     axis::share_within(layer.vocab(), 16, 20), 12);
  };
  return {
      .name = "fgd",
      .kind = std::string(Fgd::kind),
      .summary = "Fast Graph Decoder: a search in a small world graph over the rows",
      .advice = {.place = 40,
                 .names = "`Fgd`",
                 .answers = "approximate; P@5 by ef_search, which each query may choose; log Z learned",
                 .learns_from = "nothing; contexts help",
                 .take_when = "contexts to learn from are few, or precision must vary from query to query"},
      .builder = builder<FgdOptions>({"Fgd::build", "layer, contexts", "topksoftmax/fgd/build.hpp"}, build),
      .loader = &load_as<Fgd>,
      .axes = {{.option = "ef_search", .values = axis::short_lists(), .effort = axis::value_itself}},
      .tuning =
          TuningPlan{
              .turn = 40,
              .efforts = OptionAxis{.option = "ef_search", .values = queues, .effort = axis::value_itself}},
      .wrapped = {.settings = {{"outside_sample", "0"}}},
      .tensors = detail::with_outside_mass(
          {{"entries", "I32", "[*]", "rows where searches start"},
           {"ground.offsets", "U64", "[V + 1]", "row v's links are targets[offsets[v] … offsets[v + 1])"},
           {"ground.targets", "I32", "[*]", "rows that links lead to"},
           {"upper.N.offsets", "U64", "[V + 1]",
            "of the layers above, 0 the sparsest; there are options.upper_layers of them"},
           {"upper.N.targets", "I32", "[*]", "of the layers above"},
           {"rows", "I8", "[V, *]", "the rows, then zeros up to a multiple of 64; absent for layers of I8"},
           {"rows.scales", "F32", "[V]", "w = scale·q; absent for layers of I8"}},
          "1")};
}

}  // namespace TOPKSOFTMAX_NAMESPACE
