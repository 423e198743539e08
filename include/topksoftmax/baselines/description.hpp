// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "topksoftmax/baselines/build_greedy_mips.hpp"
#include "topksoftmax/baselines/build_lsh_mips.hpp"
#include "topksoftmax/baselines/build_pca_mips.hpp"
#include "topksoftmax/baselines/build_wta_lsh_each.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/registry/axes.hpp"
#include "topksoftmax/registry/description.hpp"
#include "topksoftmax/registry/outside_tensors.hpp"
#include "topksoftmax/wta/tensors.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What there is to say of every general method of maximum inner product search.
inline BackendAdvice advice_on_mips(std::string names) {
  return {.place = 80,
          .names = std::move(names),
          .answers = "approximate; log Z learned",
          .learns_from = "nothing; contexts help log Z",
          .take_when = "you compare: on real layers they lose"};
}

/// What tune() tries of a backend that is built once, with its defaults.
inline TuningPlan plan_of_efforts(double turn, std::string option, axis::Values values) {
  return {.turn = turn,
          .efforts = OptionAxis{
              .option = std::move(option), .values = std::move(values), .effort = axis::value_itself}};
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline BackendDescription describe_greedy_mips() {
  const auto build = [](const BuildMaterial& from, const GreedyMipsOptions& options) {
    return GreedyMips::build(from.layer, from.contexts, options, from.executor);
  };
  return {
      .name = "greedy-mips",
      .kind = std::string(GreedyMips::kind),
      .summary = "Greedy-MIPS: tokens by their largest single product",
      .advice = detail::advice_on_mips("`GreedyMips`"),
      .builder = builder<GreedyMipsOptions>(
          {"GreedyMips::build", "layer, contexts", "topksoftmax/baselines/build_greedy_mips.hpp"}, build),
      .loader = &load_as<GreedyMips>,
      .axes = {{.option = "budget", .values = axis::vocab_shares(100, 2, 9), .effort = axis::value_itself}},
      .tuning = detail::plan_of_efforts(80, "budget", axis::vocab_shares_within(100, 2, 8)),
      .wrapped = {.settings = {{"outside_sample", "0"}}},
      .tensors = detail::with_outside_mass(
          {{"entries", "I32", "[D, V, 2]",
            "a weight's bits (float32) and its token, by falling weight; D = d, and one more with "
            "a bias"}},
          "1")};
}

inline BackendDescription describe_pca_mips() {
  const auto build = [](const BuildMaterial& from, const PcaMipsOptions& options) {
    return PcaMips::build(from.layer, from.contexts, options, from.executor);
  };
  const std::size_t leaves = std::size_t{1} << PcaMipsOptions{}.depth;
  return {.name = "pca-mips",
          .kind = std::string(PcaMips::kind),
          .summary = "PCA-MIPS: a tree over the rows, lifted to equal lengths",
          .advice = detail::advice_on_mips("`PcaMips`"),
          .builder = builder<PcaMipsOptions>(
              {"PcaMips::build", "layer, contexts", "topksoftmax/baselines/build_pca_mips.hpp"}, build),
          .loader = &load_as<PcaMips>,
          .axes = {{.option = "depth", .values = axis::listed({3, 5, 7, 9})},
                   {.option = "leaves",
                    .values = axis::listed({1, 2, 4, 8, 16, 32, 64, 128}),
                    .effort = axis::value_itself}},
          .tuning = detail::plan_of_efforts(70, "leaves", axis::listed(geometric(1, leaves / 2, 7))),
          .wrapped = {.settings = {{"outside_sample", "0"}}},
          .tensors = detail::with_outside_mass(
              {{"components", "F32", "[depth, d]", "of rows lifted by Ippt: the first d coordinates …"},
               {"components.offsets", "F32", "[depth]", "… and the bias's"},
               {"medians", "F32", "[2^depth]", "of node n ≥ 1, whose children are 2n and 2n + 1"},
               {"starts", "U32", "[2·2^depth + 1]", "leaf n's tokens are ids[starts[n] … starts[n + 1])"},
               {"ids", "I32", "[V]", "tokens, leaf after leaf"}},
              "1")};
}

inline BackendDescription describe_lsh_mips() {
  const auto build = [](const BuildMaterial& from, const LshMipsOptions& options) {
    return LshMips::build(from.layer, from.contexts, options, from.executor);
  };
  const std::size_t buckets = std::size_t{1} << LshMipsOptions{}.bits;
  return {.name = "lsh-mips",
          .kind = std::string(LshMips::kind),
          .summary = "LSH-MIPS: signs of random projections of the rows, lifted to equal lengths",
          .advice = detail::advice_on_mips("`LshMips`"),
          .builder = builder<LshMipsOptions>(
              {"LshMips::build", "layer, contexts", "topksoftmax/baselines/build_lsh_mips.hpp"}, build),
          .loader = &load_as<LshMips>,
          .axes = {{.option = "tables", .values = axis::listed({16, 64})},
                   {.option = "bits", .values = axis::listed({8, 12})},
                   {.option = "probes",
                    .values = axis::listed({1, 2, 4, 8, 16, 32, 64}),
                    .effort = axis::value_itself}},
          .tuning = detail::plan_of_efforts(75, "probes", axis::listed(geometric(1, buckets / 2, 8))),
          .wrapped = {.settings = {{"outside_sample", "0"}}},
          .tensors = detail::with_outside_mass(
              {{"directions", "F32", "[tables·bits, d]", "of rows lifted by Ippt: the first d coordinates …"},
               {"directions.offsets", "F32", "[tables·bits]", "… and the bias's"},
               {"offsets", "U32", "[tables, 2^bits + 1]",
                "bucket c of table t is ids[t, offsets[t, c] … offsets[t, c + 1])"},
               {"ids", "I32", "[tables, V]", "tokens, bucket after bucket"}},
              "1")};
}

inline BackendDescription describe_wta_lsh_each() {
  const auto build = [](const BuildMaterial& from, const WtaLshEachOptions& options) {
    return WtaLshEach::build(from.layer, from.contexts, options, from.executor);
  };
  return {
      .name = "wta-lsh-each",
      .kind = std::string(WtaLshEach::kind),
      .summary = "Winner-take-all hashing: each context its own top collisions",
      .advice = {.place = 100,
                 .names = "`WtaLshEach`",
                 .answers = "the same with a list for each context; log Z learned",
                 .learns_from = "nothing; contexts help log Z",
                 .take_when = "you compare"},
      .builder = builder<WtaLshEachOptions>(
          {"WtaLshEach::build", "layer, contexts", "topksoftmax/baselines/build_wta_lsh_each.hpp"}, build),
      .loader = &load_as<WtaLshEach>,
      .axes = {{.option = "top_collisions",
                .values = axis::vocab_shares(200, 3, 9),
                .effort = axis::value_itself}},
      .tuning = detail::plan_of_efforts(65, "top_collisions", axis::vocab_shares_within(200, 3, 8)),
      .wrapped = {.settings = {{"outside_sample", "0"}}},
      .tensors = detail::with_outside_mass(detail::wta_tensors(), "1")};
}

}  // namespace TOPKSOFTMAX_NAMESPACE
