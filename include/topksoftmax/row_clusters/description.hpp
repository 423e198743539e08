// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "topksoftmax/config.hpp"
#include "topksoftmax/registry/axes.hpp"
#include "topksoftmax/registry/description.hpp"
#include "topksoftmax/registry/outside_tensors.hpp"
#include "topksoftmax/row_clusters/build.hpp"
#include "topksoftmax/row_clusters/row_clusters.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

inline BackendDescription describe_row_clusters() {
  const auto build = [](const BuildMaterial& from, const RowClustersOptions& options) {
    return RowClusters::build(from.layer, from.contexts, options, from.executor);
  };
  const axis::Values visited = [](const SoftmaxLayer& layer, std::size_t) {
    return geometric(1, axis::share(detail::default_row_clusters(layer.vocab()), 2, 1), 8);
  };
  return {
      .name = "row-clusters",
      .kind = std::string(RowClusters::kind),
      .summary = "Balanced clusters of rows, those with the best centroids scored",
      .advice = {.place = 55,
                 .names = "`RowClusters`",
                 .answers = "approximate; P@5 by the clusters visited, which each query may choose; log Z "
                            "learned",
                 .learns_from = "nothing; contexts help",
                 .take_when = "a model brings its clusters along, as Gemma 4's drafts do"},
      .builder = builder<RowClustersOptions>(
          {"RowClusters::build", "layer, contexts", "topksoftmax/row_clusters/build.hpp"}, build),
      .loader = &load_as<RowClusters>,
      .axes = {{.option = "visited", .values = visited, .effort = axis::value_itself}},
      .tuning = TuningPlan{.turn = 45},
      .wrapped = {.settings = {{"visited", "2"}, {"outside_sample", "0"}},
                  .axes = {{.option = "visited",
                            .values = axis::listed({1, 2, 4, 8}),
                            .effort = axis::value_itself}}},
      .tensors = detail::with_outside_mass(
          {{"centroids", "F32", "[C, d]", "of the clusters, as they are scored"},
           {"tokens", "I32", "[V]", "cluster t has tokens[starts[t] … starts[t + 1])"},
           {"starts", "U64", "[C + 1]", "where each cluster begins; none is empty"}},
          "1")};
}

}  // namespace TOPKSOFTMAX_NAMESPACE
