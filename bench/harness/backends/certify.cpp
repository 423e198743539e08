// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/screeners/certify.hpp"

#include "harness/backends.hpp"
#include "topksoftmax/screeners/l2s.hpp"

namespace topksoftmax::bench {
namespace {

/// Of both: a short list is enough for a threshold.
struct CertifyL2SOptions {
  std::size_t clusters = 16;
  double budget = 12.0;
  CertifiedOptions bounds = {};
};

}  // namespace

Backend certify_l2s() {
  using Options = CertifyL2SOptions;
  return make_backend<Options>(
      "certify:l2s", "L2S with short lists, its answers checked and repaired by certified's bounds",
      {field("clusters", &Options::clusters, "r, the clusters of L2S"),
       field("budget", &Options::budget, "B, candidates that a context meets in the mean"),
       field<Options>(
           "prefix", [](auto& options) -> auto& { return options.bounds.prefix; },
           "coordinates that the first scan reads; 0 chooses on the contexts"),
       field<Options>(
           "width", [](auto& options) -> auto& { return options.bounds.width; }, "coordinates in all")},
      [](const Head& head, const Options& options, const TrainingProgress& progress) {
        L2SOptions lists;
        lists.clusters = options.clusters;
        lists.budget = options.budget;
        lists.progress = progress;
        return Certify::wrap(L2S::train_kmeans(head.layer, head.train, lists), head.train, options.bounds);
      },
      {{.parameter = "budget", .values = [](const Head&) {
          return std::vector<std::size_t>{6, 12, 24, 48};
        }}});
}

}  // namespace topksoftmax::bench
