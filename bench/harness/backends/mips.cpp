// SPDX-License-Identifier: Apache-2.0
//
// The general methods of maximum inner product search.
#include <algorithm>

#include "harness/backends.hpp"
#include "topksoftmax/evaluation/sweep.hpp"
#include "topksoftmax/screeners/greedy_mips.hpp"
#include "topksoftmax/screeners/lsh_mips.hpp"
#include "topksoftmax/screeners/pca_mips.hpp"

namespace topksoftmax::bench {

Backend greedy_mips() {
  using Options = GreedyMipsOptions;
  return make_backend<Options>(
      "greedy-mips", "Greedy-MIPS: tokens by their largest single product",
      {field("budget", &Options::budget, "B, candidates of a query; V/10 if null")},
      [](const Head& head, const Options& options, const TrainingProgress&) {
        return GreedyMips::build(head.layer, options);
      },
      {{.parameter = "budget",
        .values =
            [](const Head& head) {
              return geometric(std::max<std::size_t>(head.layer.vocab() / 100, 1),
                               std::max<std::size_t>(head.layer.vocab() / 2, 2), 9);
            },
        .effort = [](const nlohmann::json& values) { return values.at("budget").get<std::size_t>(); }}});
}

Backend pca_mips() {
  using Options = PcaMipsOptions;
  return make_backend<Options>(
      "pca-mips", "PCA-MIPS: a tree over the rows, lifted to equal lengths",
      {field("depth", &Options::depth, "levels of the tree"),
       field("leaves", &Options::leaves, "that a query visits; depth + 1 if 0")},
      [](const Head& head, const Options& options, const TrainingProgress&) {
        return PcaMips::build(head.layer, options);
      },
      {{.parameter = "depth",
        .values =
            [](const Head&) {
              return std::vector<std::size_t>{3, 5, 7, 9};
            }},
       {.parameter = "leaves",
        .values = [](const Head&) { return std::vector<std::size_t>{1, 2, 4, 8, 16, 32, 64, 128}; },
        .effort = [](const nlohmann::json& values) { return values.at("leaves").get<std::size_t>(); }}});
}

Backend lsh_mips() {
  using Options = LshMipsOptions;
  return make_backend<Options>(
      "lsh-mips", "LSH-MIPS: signs of random projections of the rows, lifted to equal lengths",
      {field("tables", &Options::tables, "hash tables"), field("bits", &Options::bits, "of a table's code"),
       field("probes", &Options::probes, "buckets of each table that a query looks into"),
       field("seed", &Options::seed, "of the projections")},
      [](const Head& head, const Options& options, const TrainingProgress&) {
        return LshMips::build(head.layer, options);
      },
      {{.parameter = "tables",
        .values =
            [](const Head&) {
              return std::vector<std::size_t>{16, 64};
            }},
       {.parameter = "bits",
        .values =
            [](const Head&) {
              return std::vector<std::size_t>{8, 12};
            }},
       {.parameter = "probes",
        .values = [](const Head&) { return std::vector<std::size_t>{1, 2, 4, 8, 16, 32, 64}; },
        .effort = [](const nlohmann::json& values) { return values.at("probes").get<std::size_t>(); }}});
}

}  // namespace topksoftmax::bench
