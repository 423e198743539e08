// SPDX-License-Identifier: Apache-2.0
//
// Builds every backend and asks it, with the form of the library that this file is compiled for.
#include <Eigen/Core>
#include <map>
#include <memory>
#include <string>
#include <topksoftmax/contexts.hpp>
#include <topksoftmax/registry/standard.hpp>
#include <utility>
#include <vector>

#include "answers.hpp"
#include "own_algebra.hpp"

using namespace topksoftmax;

namespace {

/// What small layers need otherwise than the defaults have it.
const std::map<std::string, Settings> kSettings = {
    {"l2s", {{"clusters", "8"}, {"budget", "120"}, {"rounds", "2"}}},
    {"l2s-kmeans", {{"clusters", "8"}, {"budget", "120"}}},
    {"pca-mips", {{"depth", "3"}}},
    {"row-clusters", {{"clusters", "16"}, {"visited", "6"}}},
    {"lsh-mips", {{"tables", "8"}, {"bits", "4"}, {"probes", "3"}}},
    {"certified", {{"width", "16"}}},
    {"certify:shortlist", {{"width", "16"}}},
    {"certify:l2s", {{"clusters", "8"}, {"budget", "60"}, {"width", "16"}}},
    {"wta-lsh", {{"bands", "60"}}},
    {"wta-lsh-each", {{"bands", "60"}}},
};

RowMajorMatrix matrix(const std::vector<float>& values) {
  constexpr auto dim = static_cast<Eigen::Index>(World::kDim);
  return Eigen::Map<const RowMajorMatrix>(values.data(), static_cast<Eigen::Index>(values.size()) / dim, dim);
}

Answer answer_of(const BackendDescription& backend, std::size_t question, TopK&& top) {
  return {.of = backend.name,
          .question = question,
          .ids = std::move(top.ids),
          .logits = std::move(top.logits),
          .low = top.log_z_low,
          .high = top.log_z_high,
          .exact_log_z = top.normalizer == Normalizer::exact,
          .holds_log_z = top.normalizer == Normalizer::exact || top.normalizer == Normalizer::interval,
          .exact_top_k = backend.traits.exact};
}

}  // namespace

Answers FORM::answers(const World& world) {
  const Registry registry = Registry::standard();
  std::vector<BackendDescription> backends(registry.descriptions().begin(), registry.descriptions().end());
  backends.push_back(registry.find("certify:shortlist"));

  RowMajorMatrix W = matrix(world.weights);
  Eigen::VectorXf b = Eigen::Map<const Eigen::VectorXf>(world.biases.data(), W.rows());
  const SoftmaxLayer layer = SoftmaxLayer::own(std::move(W), std::move(b));
  const RowMajorMatrix learned = matrix(world.learned);
  const RowMajorMatrix asked = matrix(world.asked);
  Answers answers;
  for (const BackendDescription& backend : backends) {
    const auto settings = kSettings.find(backend.name);
    const std::unique_ptr<TopKSoftmax> head =
        backend.build({.layer = layer, .contexts = Contexts::of(learned)},
                      settings == kSettings.end() ? Settings() : settings->second);
    do_own_algebra(static_cast<int>(World::kDim));
    for (Eigen::Index i = 0; i < asked.rows(); ++i) {
      const Eigen::VectorXf h = asked.row(i);
      answers.push_back(answer_of(backend, static_cast<std::size_t>(i), head->query(h, {.k = World::kBest})));
    }
    std::vector<TopK> batch = head->query_batch(asked, {.k = World::kBest});
    for (std::size_t i = 0; i < batch.size(); ++i)
      answers.push_back(answer_of(backend, World::kAsked + i, std::move(batch[i])));
  }
  return answers;
}
