// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/screeners/fgd.hpp"

#include <algorithm>

#include "harness/backends.hpp"
#include "topksoftmax/evaluation/sweep.hpp"

namespace topksoftmax::bench {

Backend fgd() {
  using Options = FgdOptions;
  return make_backend<Options>(
      "fgd", "Fast Graph Decoder: a search in a small world graph over the rows",
      {field("M", &Options::M, "links that a row is given when it is inserted"),
       field("ef_construction", &Options::ef_construction, "rows that are looked at to find these"),
       field("ef_search", &Options::ef_search, "length of a query's candidate queue"),
       field("seed", &Options::seed, "of the graph's layers"),
       field("entry_points", &Options::entry_points, "rows where searches start"),
       field("context_sample", &Options::context_sample, "contexts that these are learned from")},
      [](const Head& head, const Options& options, const TrainingProgress&) {
        return Fgd::build(head.layer, head.train, options);
      },
      {{.parameter = "ef_search",
        .values =
            [](const Head& head) {
              return geometric(10, std::max<std::size_t>(head.layer.vocab() / 20, 20), 9);
            },
        .effort = [](const nlohmann::json& values) { return values.at("ef_search").get<std::size_t>(); }}});
}

}  // namespace topksoftmax::bench
