// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/screeners/l2s.hpp"

#include <algorithm>

#include "harness/backends.hpp"
#include "topksoftmax/evaluation/sweep.hpp"

namespace topksoftmax::bench {
namespace {

/// What both variants take.
std::vector<Field<L2SOptions>> kmeans_fields() {
  using Options = L2SOptions;
  return {
      field("clusters", &Options::clusters, "r, the clusters"),
      field("budget", &Options::budget, "B, candidates that a context meets in the mean"),
      field("lambda", &Options::lambda, "λ, the price of a candidate that is not among the top tokens"),
      field("kmeans_iterations", &Options::kmeans_iterations, "of the spherical k-means"),
      field("label_count", &Options::label_count, "a context's exact top tokens that count in full"),
      field("label_depth", &Options::label_depth, "the rank down to which near misses count"),
      field("near_miss_value", &Options::near_miss_value, "what a near miss counts; 0: nothing"),
      field("near_miss_temperature", &Options::near_miss_temperature, "how fast that falls with the logit"),
      field("seed", &Options::seed, "of the random numbers")};
}

std::vector<Field<L2SOptions>> l2s_fields() {
  using Options = L2SOptions;
  std::vector<Field<L2SOptions>> fields = kmeans_fields();
  for (const Field<L2SOptions>& learning :
       {field("gamma", &Options::gamma, "γ, the price of a mean above the budget"),
        field("temperature", &Options::temperature, "of the Gumbel softmax"),
        field("rounds", &Options::rounds, "T, alternations of learning clusters and choosing candidates"),
        field("epochs", &Options::epochs, "passes over the contexts a round"),
        field("batch_size", &Options::batch_size, "contexts a step"),
        field("learning_rate", &Options::learning_rate, "of the cluster vectors"),
        field("sharpness", &Options::sharpness,
              "how sharply clusters divide the contexts before they learn")}) {
    fields.push_back(learning);
  }
  return fields;
}

/// Budgets for --sweep: from a few candidates to a twentieth of the vocabulary.
SweepAxis budgets() {
  return {.parameter = "budget", .values = [](const Head& head) {
            return geometric(10, std::max<std::size_t>(head.layer.vocab() / 20, 20), 9);
          }};
}

}  // namespace

Backend l2s() {
  return make_backend<L2SOptions>(
      "l2s", "Learning to Screen: learned clusters of contexts, a candidate set each", l2s_fields(),
      [](const Head& head, L2SOptions options, const TrainingProgress& progress) {
        options.progress = progress;
        return L2S::train(head.layer, head.train, options);
      },
      {budgets()});
}

Backend l2s_kmeans() {
  return make_backend<L2SOptions>(
      "l2s-kmeans", "Learning to Screen with the clusters of spherical k-means alone", kmeans_fields(),
      [](const Head& head, L2SOptions options, const TrainingProgress& progress) {
        options.progress = progress;
        return L2S::train_kmeans(head.layer, head.train, options);
      },
      {budgets()});
}

}  // namespace topksoftmax::bench
