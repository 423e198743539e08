// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "topksoftmax/check_options.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/graph/search_beam.hpp"
#include "topksoftmax/learning/outside_option.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/option_limits.hpp"
#include "topksoftmax/softmax_layer.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Options of Fgd. What builds throws Error for values out of their ranges.
struct FgdOptions {
  /// Links that a row is given when it is inserted (twice as many may lead from it in the end): 2 to 1024.
  std::size_t M = 16;
  /// Rows that are looked at to find these: at least 1.
  std::size_t ef_construction = 200;
  /// Length of the candidate queue of a query, at least 1; a query's `effort` overrides it. The trade-off
  /// between speed and precision: the paper uses 20 to 200.
  std::size_t ef_search = 100;
  /// Decides the layers of the graph that each row is in.
  std::uint64_t seed = 1;
  /// Rows where every search starts, if there are contexts to learn them from: at least 1.
  std::size_t entry_points = 16;
  /// Contexts that these are learned from, evenly spaced ones of those given: at least 1.
  std::size_t context_sample = 2000;
  /// Contexts, evenly spaced ones, that the mass outside of the tokens found is learned from
  /// (Normalizer::learned); 0, or fewer than 100 contexts: it is not.
  std::size_t outside_sample = 5000;

  /// Told how far the build is; may be empty.
  TrainingProgress progress = {};

  /// What its indexes have of them.
  template <class Self, class Visit>
  static void visit_index(Self& options, Visit&& visit) {
    visit("M", options.M, "links that a row is given when it is inserted", at_least(2).and_at_most(1024));
    visit("ef_construction", options.ef_construction, "rows that are looked at to find these", at_least(1));
    visit("ef_search", options.ef_search, "length of a query's candidate queue", at_least(1));
    visit("seed", options.seed, "of the graph's layers");
    visit("entry_points", options.entry_points, "rows where searches start", at_least(1));
    visit("context_sample", options.context_sample, "contexts that these are learned from", at_least(1));
  }

  /// Calls visit(name, value, help[, limits]) for every option, in the order of their declaration.
  template <class Self, class Visit>
  static void visit(Self& options, Visit&& visit) {
    visit_index(options, visit);
    detail::visit_outside_sample(options, visit);
  }
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Throws Error for options that nothing can be built or loaded with.
inline void check_fgd_options(const SoftmaxLayer& layer, const FgdOptions& options) {
  check_options("fgd", options);
  if (layer.vocab() > SearchBeam::kMostRows) {
    throw bad_value("fgd: the number of tokens", layer.vocab(), "at least 1 and at most ",
                    SearchBeam::kMostRows);
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
