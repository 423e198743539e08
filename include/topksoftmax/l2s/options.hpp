// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "topksoftmax/check_options.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/learning/outside_option.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/option_limits.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// How L2S learns. The defaults are the paper's where it gives one, but for near misses and the prior, which
/// it has none of: near_miss_value = 0 and prior = 0 are the paper's form.
struct L2SOptions {
  /// r, at least 1; no more than there are contexts are made. The paper advises 100 or 200.
  std::size_t clusters = 100;
  /// B, candidates a context meets in the mean, at least 1: the knob between speed and precision.
  double budget = 100.0;
  double lambda = 3e-4;  ///< λ of Eq. 6, above 0 and below 1
  /// Iterations of spherical k-means, at most: at least 1.
  std::size_t kmeans_iterations = 15;

  std::size_t label_count = 5;         ///< a context's labels y: its exact top tokens, at least 1
  std::size_t label_depth = 16;        ///< near misses count down to this rank, no less than label_count …
  double near_miss_value = 1.0;        ///< … as this share of a label, 0 (the paper's plain form) to 1 …
  double near_miss_temperature = 1.0;  ///< … times exp(−gap in logits / this), above 0 and at most 10⁶
  /// Of everything that is drawn in the training.
  std::uint64_t seed = 1;

  double gamma = 10.0;           ///< γ of Eq. 8, 0 to 10⁶
  double temperature = 1.0;      ///< of the Gumbel softmax, 10⁻⁶ to 10⁶
  std::size_t rounds = 5;        ///< T of Algorithm 1; 0 keeps the k-means clusters (the paper's Table 5)
  std::size_t epochs = 2;        ///< passes over the contexts a round, at least 1
  std::size_t batch_size = 512;  ///< contexts a step, at least 1
  /// Of GumbelTrainer, above 0 and at most 10⁶; falls linearly to a tenth over the training.
  double learning_rate = 0.05;
  /// How sharply the clusters divide the contexts before they learn: the mean of max_t P(t|h) (Eq. 3), above
  /// 0 and below 1. Scaling all v_t alike changes no prediction, only how soft that softmax is.
  double sharpness = 0.8;

  /// Contexts like the mean of all that every cluster has besides its own where its set is chosen in the end:
  /// 0 to 10⁶. Where clusters have few contexts each, sets get the tokens that are common everywhere.
  double prior = 1.0;

  /// Contexts, evenly spaced ones, that the mass outside of the sets is learned from (Normalizer::learned);
  /// 0, or fewer than 100 contexts: it is not.
  std::size_t outside_sample = 15000;

  /// Told how far the training is; may be empty.
  TrainingProgress progress = {};

  /// What k-means alone takes.
  template <class Self, class Visit>
  static void visit_kmeans(Self& options, Visit&& visit) {
    visit("clusters", options.clusters, "r, the clusters", at_least(1));
    visit("budget", options.budget, "B, candidates that a context meets in the mean", at_least(1));
    visit("lambda", options.lambda, "λ, the price of a candidate that is not among the top tokens",
          above(0).and_below(1));
    visit("kmeans_iterations", options.kmeans_iterations, "of the spherical k-means, at most", at_least(1));
    visit("label_count", options.label_count, "a context's exact top tokens that count in full", at_least(1));
    visit("label_depth", options.label_depth, "the rank down to which near misses count");
    visit("near_miss_value", options.near_miss_value, "what a near miss counts; 0: nothing", from_to(0, 1));
    visit("near_miss_temperature", options.near_miss_temperature, "how fast that falls with the logit",
          above(0).and_at_most(1e6));
    visit("seed", options.seed, "of the random numbers");
  }

  template <class Self, class Visit>
  static void visit_prior(Self& options, Visit&& visit) {
    visit("prior", options.prior, "contexts like the mean of all that every cluster has besides its own",
          from_to(0, 1e6));
  }

  /// What its indexes have of them.
  template <class Self, class Visit>
  static void visit_index(Self& options, Visit&& visit) {
    constexpr double most = 1e6;  // whose products with the others stay within the floats
    visit_kmeans(options, visit);
    visit("gamma", options.gamma, "γ, the price of a mean above the budget", from_to(0, most));
    visit("temperature", options.temperature, "of the Gumbel softmax", from_to(1.0 / most, most));
    visit("rounds", options.rounds, "T, alternations of learning clusters and choosing candidates");
    visit("epochs", options.epochs, "passes over the contexts a round", at_least(1));
    visit("batch_size", options.batch_size, "contexts a step", at_least(1));
    visit("learning_rate", options.learning_rate, "of the cluster vectors", above(0).and_at_most(most));
    visit("sharpness", options.sharpness, "how sharply clusters divide the contexts before they learn",
          above(0).and_below(1));
  }

  /// Calls visit(name, value, help[, limits]) for every option, in the order of their declaration.
  template <class Self, class Visit>
  static void visit(Self& options, Visit&& visit) {
    visit_index(options, visit);
    visit_prior(options, visit);
    detail::visit_outside_sample(options, visit);
  }
};

/// The options that L2S::train_kmeans() has a use for.
struct L2SKMeansOptions : L2SOptions {
  /// Calls visit(name, value, help[, limits]) for every option, in the order of their declaration.
  template <class Self, class Visit>
  static void visit(Self& options, Visit&& visit) {
    visit_kmeans(options, visit);
    visit_prior(options, visit);
    detail::visit_outside_sample(options, visit);
  }
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Throws Error for what nothing can be learned with.
inline void check(const L2SOptions& options) {
  check_options("l2s", options);
  if (options.label_depth < options.label_count) {
    throw bad_value("l2s: label_depth", options.label_depth, "at least label_count, ", options.label_count);
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
