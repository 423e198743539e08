// SPDX-License-Identifier: Apache-2.0
#include "harness/experiments/ablation.hpp"

#include <utility>

#include "harness/command_line/usage_error.hpp"
#include "topksoftmax/registry/joined.hpp"

namespace topksoftmax::bench {

Choice AblationRequest::choice(std::string_view backend, const Settings& varied) const {
  Choice chosen = choose_backends(registry, backend, settings).front();
  for (const auto& [name, value] : varied) chosen.settings[name] = value;
  return suited_to(measure.largest_k(), std::move(chosen));
}

std::span<const Ablation> ablations() {
  static const std::vector<Ablation> all = {
      {"clusters", "L2S's Table 4: the number of clusters, at about the same time a query",
       run_clusters_ablation},
      {"vocabulary", "L2S's Figure 8: the layer cut to its most frequent tokens", run_vocabulary_ablation},
      {"k", "FGD's Table 2: precision and distances (dist_cnt) by ef_search", run_k_ablation, {"--k"}},
      {"beam",
       "WTA-LSH's Table 8: batches as large as beams; a batch is of consecutive test contexts",
       run_beam_ablation,
       {"--batch"}},
      {"top-frequent",
       "WTA-LSH's Figure 8: T, the most frequent tokens in every list, at batches of 12",
       run_top_frequent_ablation,
       {"--batch"}},
      {"bounds", "Upper bounds that prove the top-k: rows rescored, bounds made and bytes read a query",
       run_bounds_ablation},
      {"thresholds",
       "Slices of the vocabulary: what passes Certified's bounds by a slice's own k-th logit, and by "
       "that of all slices",
       run_thresholds_ablation,
       {"--queries", "--threads", "--batch"}},
      {"fusion",
       "Fused softmax's Table 2: bias, softmax and n-best search of products W·h",
       run_fusion_ablation,
       {"--k", "--queries", "--threads", "--batch"}},
  };
  return all;
}

const Ablation& find_ablation(std::string_view name) {
  for (const Ablation& ablation : ablations()) {
    if (ablation.name == name) return ablation;
  }
  throw UsageError("there is no ablation \"" + std::string(name) + "\"; there are " +
                   detail::joined(ablations(), &Ablation::name));
}

}  // namespace topksoftmax::bench
