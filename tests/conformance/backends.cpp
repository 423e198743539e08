// SPDX-License-Identifier: Apache-2.0
#include "conformance/backends.hpp"

#include <algorithm>
#include <utility>

#include "topksoftmax/contexts.hpp"
#include "topksoftmax/registry/standard.hpp"

namespace topksoftmax::testing {

namespace {

/// A backend of the registry, with settings for small layers.
struct Variant {
  std::string backend;
  Settings settings = {};
  std::string name = {};  ///< where it is tried with other settings too
};

const std::vector<Variant>& variants() {
  static const std::vector<Variant> all = {
      {"exact"},
      {"fused"},
      {"l2s", {{"clusters", "8"}, {"budget", "60"}, {"rounds", "2"}}},
      {"l2s-kmeans", {{"clusters", "8"}, {"budget", "60"}}},
      {"fgd", {{"ef_search", "20"}}},
      {"svd"},
      {"adaptive"},
      {"greedy-mips"},
      {"pca-mips", {{"depth", "4"}}},
      {"lsh-mips", {{"tables", "8"}, {"bits", "5"}, {"probes", "3"}}},
      {"shortlist"},
      {"quantized"},
      {"certified", {{"width", "16"}, {"boxes", "never"}}},
      {"certify:shortlist", {{"width", "16"}}},
      {"wta-lsh", {{"bands", "60"}}},
      {"wta-lsh-each", {{"bands", "60"}}},
      {"certified", {{"width", "16"}, {"boxes", "always"}}, "certified-boxes"},
      {"certified", {{"prefix", "4"}, {"width", "64"}}, "certified-long-tails"},
  };
  return all;
}

}  // namespace

const std::vector<Backend>& all_backends() {
  static const std::vector<Backend> all = [] {
    const Registry registry = Registry::standard();
    std::vector<Backend> made;
    for (const Variant& variant : variants()) {
      const BackendDescription backend = registry.find(variant.backend);
      made.push_back({.name = variant.name.empty() ? backend.name : variant.name,
                      .make =
                          [backend, settings = variant.settings](const SoftmaxLayer& layer,
                                                                 const RowMajorMatrix& contexts) {
                            return backend.build({.layer = layer, .contexts = Contexts::of(contexts)},
                                                 settings);
                          },
                      .system = backend.name,
                      .exact = backend.traits.exact,
                      .exhaustible = backend.traits.exhaustible,
                      .shares_batch = backend.traits.shares_batches});
    }
    return made;
  }();
  return all;
}

std::string suite_name(const Backend& backend) {
  std::string name = backend.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == ':'; }, '_');
  return name;
}

}  // namespace topksoftmax::testing
