// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/screeners/wta_lsh.hpp"

#include <algorithm>
#include <iterator>

#include "harness/backends.hpp"
#include "topksoftmax/evaluation/sweep.hpp"
#include "topksoftmax/screeners/wta_lsh_each.hpp"

namespace topksoftmax::bench {
namespace {

/// A parameter of the hash, among the backend's own.
template <class Options, class T>
Field<Options> hash_field(std::string name, T WtaHashOptions::*member, std::string help) {
  return field<Options>(
      std::move(name), [member](auto& options) -> auto& { return options.hash.*member; }, std::move(help));
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

}  // namespace

Backend wta_lsh() {
  using Options = WtaLshOptions;
  return make_backend<Options>(
      "wta-lsh", "Winner-take-all hashing: one list for a batch, and the most frequent tokens",
      wta_fields<Options>(
          {field("threshold", &Options::threshold, "t, bands that a candidate must share with the context"),
           field("top_frequent", &Options::top_frequent,
                 "T, most frequent tokens in every list; V/10 if null")}),
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
  return make_backend<Options>(
      "wta-lsh-each", "Winner-take-all hashing: each context its own top collisions",
      wta_fields<Options>({field("top_collisions", &Options::top_collisions,
                                 "tokens that a list has at most; V/10 if null")}),
      [](const Head& head, const Options& options, const TrainingProgress&) {
        return WtaLshEach::build(head.layer, options);
      },
      {{.parameter = "top_collisions",
        .values =
            [](const Head& head) {
              return geometric(std::max<std::size_t>(head.layer.vocab() / 200, 1),
                               std::max<std::size_t>(head.layer.vocab() / 3, 2), 9);
            },
        .effort =
            [](const nlohmann::json& values) { return values.at("top_collisions").get<std::size_t>(); }}});
}

}  // namespace topksoftmax::bench
