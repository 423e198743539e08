// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/backends/choice.hpp"
#include "harness/heads/head.hpp"
#include "harness/measuring/measurer.hpp"
#include "harness/text/progress.hpp"

namespace topksoftmax::bench {

/// What an ablation works on.
struct AblationRequest {
  const Registry& registry;
  const Head& head;
  std::span<const std::string> settings;  ///< of --set
  MeasureOptions measure;
  Progress& progress;

  /// A backend with the settings that --set gave it, those of the ablation over them, and what the largest k
  /// calls for where neither says.
  Choice choice(std::string_view backend, const Settings& varied) const;
};

/// An experiment of the papers, or one that shows what a choice of ours is worth, on a head: a file in
/// ablations/ each.
struct Ablation {
  std::string name;
  std::string summary;
  void (*run)(const AblationRequest& request, std::ostream& out);
  std::vector<const char*> unused{};  ///< options of `measure` that it chooses itself, or has no use for
};

/// The table of ablations.
std::span<const Ablation> ablations();

/// The ablation of this name. Throws UsageError, which lists the names, if there is none.
const Ablation& find_ablation(std::string_view name);

/// The head with only its `vocab` most frequent tokens, of equals the lower ids; it must have counts.
Head most_frequent_of(const Head& head, std::size_t vocab);

void run_clusters_ablation(const AblationRequest& request, std::ostream& out);
void run_vocabulary_ablation(const AblationRequest& request, std::ostream& out);
void run_fusion_ablation(const AblationRequest& request, std::ostream& out);
void run_k_ablation(const AblationRequest& request, std::ostream& out);
void run_beam_ablation(const AblationRequest& request, std::ostream& out);
void run_top_frequent_ablation(const AblationRequest& request, std::ostream& out);
void run_bounds_ablation(const AblationRequest& request, std::ostream& out);
void run_thresholds_ablation(const AblationRequest& request, std::ostream& out);

}  // namespace topksoftmax::bench
