// SPDX-License-Identifier: Apache-2.0
//
// Builds, asks and decodes with the form of the library that this file is compiled for. It uses Eigen itself.
#include "form.hpp"

#include <Eigen/Dense>
#include <topksoftmax/decoding/sampling.hpp>
#include <topksoftmax/fused.hpp>
#include <topksoftmax/l2s/build.hpp>
#include <topksoftmax/quantized/build.hpp>

#define JOINED(a, b) a##b
#define JOIN(a, b) JOINED(a, b)

namespace {

/// Small whole numbers: whatever the vectors are, sums of their products are exact.
topksoftmax::RowMajorMatrix numbers(Eigen::Index rows, Eigen::Index cols, unsigned seed) {
  topksoftmax::RowMajorMatrix m(rows, cols);
  for (Eigen::Index i = 0; i < rows; ++i) {
    for (Eigen::Index j = 0; j < cols; ++j) {
      seed = seed * 1664525U + 1013904223U;
      m(i, j) = static_cast<float>(seed >> 28) - 7.5F;
    }
  }
  return m;
}

}  // namespace

Answers JOIN(answers_of_, FORM)() {
  using namespace topksoftmax;
  RowMajorMatrix W = numbers(400, 24, 1);
  W.conservativeResize(380, 24);
  const Eigen::MatrixXd solved = (W.transpose() * W).cast<double>().ldlt().solve(Eigen::MatrixXd::Identity(24, 24));
  Answers answers;
  if (!solved.allFinite()) return answers;
  const SoftmaxLayer layer = SoftmaxLayer::own(std::move(W));
  const RowMajorMatrix contexts = numbers(300, 24, 2);
  const std::shared_ptr<const TopKSoftmax> heads[] = {
      Fused::make(layer), Quantized::build(layer),
      L2S::train_kmeans(layer, contexts, {.clusters = 4, .budget = 200})};
  Workspace workspace;
  for (const auto& head : heads) {
    for (Eigen::Index i = 0; i < 20; ++i) {
      const TopK top = head->query(contexts.row(i).transpose(), {.k = 3});
      answers.ids.insert(answers.ids.end(), top.ids.begin(), top.ids.end());
      answers.logits.insert(answers.logits.end(), top.logits.begin(), top.logits.end());
    }
  }
  RandomStream random(1);
  Sampler sampler({.temperature = 2.0, .top_k = 5});
  answers.ids.push_back(sampler.draw(*heads[0], contexts.row(0).transpose(), random).id);
  return answers;
}
