// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/l2s/build.hpp"
#include "topksoftmax/l2s/l2s.hpp"
#include "topksoftmax/l2s/options.hpp"
#include "topksoftmax/registry/axes.hpp"
#include "topksoftmax/registry/description.hpp"
#include "topksoftmax/registry/outside_tensors.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

inline std::vector<TensorDescription> l2s_tensors() {
  std::vector<TensorDescription> own = {
      {"clusters", "F32", "[r, d]", R"(v_t (options.name: "l2s" or "l2s-kmeans"))"},
      {"offsets", "U64", "[r + 1]", "C(t) is ids[offsets[t] … offsets[t + 1])"},
      {"ids", "I32", "[*]", "tokens, ascending within a set"},
      {"codes", "U8", "[*, *]",
       "rows of the sets of 128 tokens and more, 8 bits each, in blocks of 16 (kernels::PrefixBlocks), each "
       "set "
       "from a block on; absent, as the next one, where there are none, and in indexes of before"},
      {"codes.longest", "F64", "[1]", "the length of the longest of these rows"},
      {"history", "F64", "[*, 3]", "of each round: objective, missed, set_size"}};
  return with_outside_mass(std::move(own), "r");
}

/// Labels for the k that is asked for: the exact top k, and near misses down to three times as deep.
inline Settings l2s_labels(std::size_t k) {
  const L2SOptions defaults;
  if (k == defaults.label_count) return {};
  return {{"label_count", std::to_string(k)},
          {"label_depth", std::to_string(std::max(defaults.label_depth, 3 * k))}};
}

/// Of tune(): what is tried around each number of clusters. A query's effort is the clusters that it visits.
inline TuningPlan l2s_plan() {
  const axis::Values budgets = [](const SoftmaxLayer& layer, std::size_t) {
    return geometric(std::min<std::size_t>(10, layer.vocab()), axis::share_within(layer.vocab(), 10, 20), 8);
  };
  return {.turn = 30,
          .searches = {{.option = "clusters", .values = axis::listed({30, 100, 200})}},
          .models = OptionAxis{.option = "budget", .values = budgets},
          .efforts = OptionAxis{.option = "effort",
                                .values = axis::listed({0, 2, 3, 4, 6, 8}),
                                .effort = axis::value_itself},
          .refined_by = "l2s"};
}

/// Within Certify: any L2S gets slower by proofs, so what counts is the quickest start, short lists.
inline WrappedUse l2s_wrapped() {
  const axis::Values budgets = [](const SoftmaxLayer& layer, std::size_t k) {
    return std::vector<std::size_t>{std::min(2 * k, layer.vocab()), std::min(4 * k, layer.vocab())};
  };
  return {.settings = {{"clusters", "16"}, {"budget", "12"}, {"outside_sample", "0"}},
          .axes = {{.option = "budget", .values = axis::listed({6, 12, 24, 48})}},
          .tuning = TuningPlan{.turn = 100,
                               .searches = {{.option = "clusters", .values = axis::listed({30})}},
                               .models = OptionAxis{.option = "budget", .values = budgets}}};
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

/// L2S whose clusters learn. tune() tries it where k-means did best.
inline BackendDescription describe_l2s() {
  const auto train = [](const BuildMaterial& from, const L2SOptions& options) {
    return L2S::train(from.layer, from.contexts, options, "l2s", from.executor);
  };
  return {
      .name = "l2s",
      .kind = std::string(L2S::kind),
      .summary = "Learning to Screen: learned clusters of contexts, a candidate set each",
      .advice = {.place = 30,
                 .names = "`L2S`",
                 .answers = "approximate; P@5 by its budget; log Z learned",
                 .learns_from = "contexts",
                 .take_when = "up to a few tokens in a hundred may differ, and every microsecond counts"},
      .traits = {.needs_contexts = true},
      .builder = builder<L2SOptions>({"L2S::train", "layer, contexts", "topksoftmax/l2s/build.hpp"}, train),
      .loader = &load_as<L2S>,
      .axes = {{.option = "budget", .values = axis::short_lists()}},
      .tuning = std::nullopt,
      .for_k = detail::l2s_labels,
      .wrapped = {.settings = {{"clusters", "16"}, {"budget", "12"}, {"outside_sample", "0"}}},
      .tensors = detail::l2s_tensors()};
}

/// L2S with the clusters of k-means.
inline BackendDescription describe_l2s_kmeans() {
  const auto train = [](const BuildMaterial& from, L2SKMeansOptions options) {
    options.rounds = 0;
    return L2S::train(from.layer, from.contexts, options, "l2s-kmeans", from.executor);
  };
  return {.name = "l2s-kmeans",
          .kind = std::string(L2S::kind),
          .summary = "Learning to Screen with the clusters of spherical k-means alone",
          .traits = {.needs_contexts = true},
          .builder = builder<L2SKMeansOptions>(
              {"L2S::train_kmeans", "layer, contexts", "topksoftmax/l2s/build.hpp"}, train),
          .loader = &load_as<L2S>,
          .axes = {{.option = "budget", .values = axis::short_lists()}},
          .tuning = detail::l2s_plan(),
          .for_k = detail::l2s_labels,
          .wrapped = detail::l2s_wrapped(),
          .tensors = detail::l2s_tensors()};
}

}  // namespace TOPKSOFTMAX_NAMESPACE
