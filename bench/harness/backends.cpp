// SPDX-License-Identifier: Apache-2.0
#include "harness/backends.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "peers/peers.hpp"
#include "topksoftmax/topksoftmax.hpp"

namespace topksoftmax::bench {
namespace {

/// About `count` whole numbers from `first` to `last`, each the same factor above the one before.
std::vector<std::size_t> geometric(std::size_t first, std::size_t last, std::size_t count) {
  std::vector<std::size_t> values;
  for (std::size_t i = 0; i < count; ++i) {
    const double share = static_cast<double>(i) / static_cast<double>(count - 1);
    const double value =
        static_cast<double>(first) * std::pow(static_cast<double>(last) / static_cast<double>(first), share);
    const auto rounded = static_cast<std::size_t>(std::llround(value));
    if (values.empty() || rounded > values.back()) values.push_back(rounded);
  }
  return values;
}

Backend exact() {
  return make_backend<NoOptions>(
      "exact", "The full softmax step by step, the ground truth of every precision", {},
      [](const Head& head, NoOptions, const TrainingProgress&) { return Exact::make(head.layer); });
}

Backend fused() {
  return make_backend<NoOptions>(
      "fused", "The full softmax in one pass: bias, log-sum-exp and top-k fused", {},
      [](const Head& head, NoOptions, const TrainingProgress&) { return Fused::make(head.layer); });
}

std::vector<Field<L2SOptions>> l2s_fields() {
  using Options = L2SOptions;
  return {
      field("clusters", &Options::clusters, "r, the clusters"),
      field("budget", &Options::budget, "B, candidates that a context meets in the mean"),
      field("lambda", &Options::lambda, "λ, the cost of a candidate that is not among the top tokens"),
      field("gamma", &Options::gamma, "γ, the cost of a mean above the budget"),
      field("temperature", &Options::temperature, "of the Gumbel softmax"),
      field("rounds", &Options::rounds, "T, alternations of learning clusters and choosing candidates"),
      field("epochs", &Options::epochs, "passes over the contexts a round"),
      field("kmeans_iterations", &Options::kmeans_iterations, "of the spherical k-means"),
      field("batch_size", &Options::batch_size, "contexts a step"),
      field("learning_rate", &Options::learning_rate, "of the cluster vectors"),
      field("sharpness", &Options::sharpness, "how sharply clusters divide the contexts before they learn"),
      field("label_count", &Options::label_count, "a context's exact top tokens that count in full"),
      field("label_depth", &Options::label_depth, "the rank down to which near misses count"),
      field("near_miss_value", &Options::near_miss_value, "what a near miss counts; 0: nothing"),
      field("near_miss_temperature", &Options::near_miss_temperature, "how fast that falls with the logit"),
      field("seed", &Options::seed, "of the random numbers")};
}

/// Budgets for --sweep: from a few candidates to a twentieth of the vocabulary.
SweepAxis budgets() {
  return {.parameter = "budget", .values = [](const Head& head) {
            return geometric(10, std::max<std::size_t>(head.layer.vocab() / 20, 20), 9);
          }};
}

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
      "l2s-kmeans", "Learning to Screen with the clusters of spherical k-means alone", l2s_fields(),
      [](const Head& head, L2SOptions options, const TrainingProgress& progress) {
        options.progress = progress;
        return L2S::train_kmeans(head.layer, head.train, options);
      },
      {budgets()});
}

/// A parameter of the hash, among the backend's own.
template <class Options, class T>
Field<Options> hash_field(std::string name, T WtaHashOptions::*member, std::string help) {
  return {.name = std::move(name),
          .help = std::move(help),
          .set = [member](Options& options,
                          std::string_view text) { options.hash.*member = parse_value<T>(text); },
          .get = [member](const Options& options) { return nlohmann::json(options.hash.*member); }};
}

/// A number of tokens that is a tenth of the vocabulary unless given.
template <class Options>
Field<Options> tenth_field(std::string name, std::optional<std::size_t> Options::*member, std::string help) {
  return {.name = std::move(name),
          .help = std::move(help),
          .set = [member](Options& options,
                          std::string_view text) { options.*member = parse_value<std::size_t>(text); },
          .get =
              [member](const Options& options) {
                return options.*member ? nlohmann::json(*(options.*member)) : nlohmann::json("V/10");
              }};
}

/// {K, u, W} and what is the backend's own.
template <class Options>
std::vector<Field<Options>> wta_fields(std::vector<Field<Options>> own) {
  std::vector<Field<Options>> fields = {
      hash_field<Options>("K", &WtaHashOptions::K, "values that a hash compares"),
      hash_field<Options>("units_per_band", &WtaHashOptions::units_per_band, "u, hashes a band"),
      hash_field<Options>("bands", &WtaHashOptions::bands, "W"),
      hash_field<Options>("seed", &WtaHashOptions::seed, "of the permutations")};
  std::move(own.begin(), own.end(), std::back_inserter(fields));
  return fields;
}

Backend wta_lsh() {
  using Options = WtaLshOptions;
  return make_backend<Options>(
      "wta-lsh", "Winner-take-all hashing: one list for a batch, and the most frequent tokens",
      wta_fields<Options>(
          {field("threshold", &Options::threshold, "t, bands that a candidate must share with the context"),
           tenth_field("top_frequent", &Options::top_frequent, "T, most frequent tokens in every list")}),
      [](const Head& head, Options options, const TrainingProgress&) {
        options.counts = head.counts;
        return WtaLsh::build(head.layer, options);
      },
      {{.parameter = "threshold",
        .values = [](const Head&) { return std::vector<std::size_t>{3, 4, 5, 6, 8, 12}; }},
       {.parameter = "top_frequent", .values = [](const Head& head) {
          return geometric(std::max<std::size_t>(head.layer.vocab() / 50, 1),
                           std::max<std::size_t>(head.layer.vocab() / 5, 2), 5);
        }}});
}

Backend wta_lsh_each() {
  using Options = WtaLshEachOptions;
  return make_backend<Options>("wta-lsh-each", "Winner-take-all hashing: each context its own top collisions",
                               wta_fields<Options>({tenth_field("top_collisions", &Options::top_collisions,
                                                                "tokens that a list has at most")}),
                               [](const Head& head, const Options& options, const TrainingProgress&) {
                                 return WtaLshEach::build(head.layer, options);
                               },
                               {{.parameter = "top_collisions",
                                 .values =
                                     [](const Head& head) {
                                       return geometric(std::max<std::size_t>(head.layer.vocab() / 200, 1),
                                                        std::max<std::size_t>(head.layer.vocab() / 3, 2), 9);
                                     },
                                 .is_effort = true}});
}

Backend certified() {
  using Options = CertifiedOptions;
  return make_backend<Options>(
      "certified", "The exact top-k, proven from int8 prefixes of rotated rows",
      {field("prefix", &Options::prefix, "coordinates that the first scan reads; 0 chooses on the contexts"),
       field("width", &Options::width, "coordinates in all"),
       field("context_sample", &Options::context_sample, "contexts that the coordinates are learned from"),
       field("expected_k", &Options::expected_k, "the k that the prefix is chosen for")},
      [](const Head& head, const Options& options, const TrainingProgress&) {
        return Certified::build(head.layer, head.train, options);
      });
}

Backend exact_fp32(Backend backend) {
  backend.is_exact_fp32 = true;
  return backend;
}

}  // namespace

std::vector<Backend> make_backends() {
  std::vector<Backend> all;
  all.push_back(exact_fp32(exact()));
  all.push_back(exact_fp32(fused()));
  all.push_back(l2s());
  all.push_back(l2s_kmeans());
  all.push_back(wta_lsh());
  all.push_back(wta_lsh_each());
  all.push_back(certified());
  add_peers(all);
  return all;
}

}  // namespace topksoftmax::bench
