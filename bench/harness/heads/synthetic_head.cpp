// SPDX-License-Identifier: Apache-2.0
#include "harness/heads/synthetic_head.hpp"

#include <Eigen/QR>
#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

namespace topksoftmax::bench {
namespace {

constexpr double kRowDecay = 0.4;
constexpr double kNormSigma = 0.2;
constexpr double kLogitDeviation = 2.2;
constexpr double kLeastLean = 3.0;
constexpr double kMostLean = 11.0;
constexpr std::array<double, 4> kLeans = {1.0, 0.75, 0.6, 0.5};

using Random = std::mt19937_64;

RowMajorMatrix normal_matrix(Eigen::Index rows, Eigen::Index cols, Random& random) {
  std::normal_distribution<float> normal;
  RowMajorMatrix values(rows, cols);
  for (float& value : values.reshaped<Eigen::RowMajor>()) value = normal(random);
  return values;
}

/// Its rows are d orthonormal directions.
RowMajorMatrix random_basis(Eigen::Index dim, Random& random) {
  const Eigen::HouseholderQR<Eigen::MatrixXf> qr(normal_matrix(dim, dim, random));
  return qr.householderQ() * Eigen::MatrixXf::Identity(dim, dim);
}

/// The square roots of energies 1/i^decay, i from 1 on.
Eigen::RowVectorXf amplitudes(Eigen::Index dim, double decay) {
  Eigen::RowVectorXf values(dim);
  for (Eigen::Index i = 0; i < dim; ++i)
    values[i] = static_cast<float>(std::pow(static_cast<double>(i + 1), -decay / 2));
  return values;
}

/// The standard deviation of the logits of some rows for some contexts.
double logit_deviation(const RowMajorMatrix& W, const RowMajorMatrix& H) {
  const Eigen::Index rows = std::min<Eigen::Index>(W.rows(), 4096);
  const Eigen::Index contexts = std::min<Eigen::Index>(H.rows(), 256);
  const Eigen::ArrayXXd logits = (W.topRows(rows) * H.topRows(contexts).transpose()).cast<double>();
  return std::sqrt((logits - logits.mean()).square().mean());
}

/// Draws token t of V with a probability ∝ 1/(t + 1).
class Zipf {
 public:
  explicit Zipf(Eigen::Index vocab) : cumulative_(static_cast<std::size_t>(vocab)) {
    double sum = 0.0;
    for (std::size_t t = 0; t < cumulative_.size(); ++t)
      cumulative_[t] = sum += 1.0 / static_cast<double>(t + 1);
  }

  Eigen::Index draw(Random& random) const {
    const double at = std::uniform_real_distribution<double>(0.0, cumulative_.back())(random);
    const auto found = std::upper_bound(cumulative_.begin(), cumulative_.end() - 1, at);
    return found - cumulative_.begin();
  }

 private:
  std::vector<double> cumulative_;
};

void lean(RowMajorMatrix& contexts, const RowMajorMatrix& W, Random& random) {
  const Zipf zipf(W.rows());
  std::uniform_real_distribution<double> first(kLeastLean, kMostLean);
  for (Eigen::Index i = 0; i < contexts.rows(); ++i) {
    const double most = first(random);
    for (const double share : kLeans) {
      const auto row = W.row(zipf.draw(random));
      contexts.row(i) += static_cast<float>(share * most) / row.squaredNorm() * row;
    }
  }
}

}  // namespace

SyntheticHead make_synthetic_head(const SyntheticHeadOptions& options) {
  Random random(options.seed);
  const auto dim = static_cast<Eigen::Index>(options.dim);
  const auto train = static_cast<Eigen::Index>(options.train_contexts);
  const auto test = static_cast<Eigen::Index>(options.test_contexts);
  const RowMajorMatrix basis = random_basis(dim, random);

  const Eigen::RowVectorXf context_amplitudes = amplitudes(dim, options.alpha);
  const Eigen::RowVectorXf mean = normal_matrix(1, dim, random).row(0);
  RowMajorMatrix contexts = normal_matrix(train + test, dim, random);
  contexts.rowwise() += mean;
  contexts = (contexts * context_amplitudes.asDiagonal() * basis).eval();

  Eigen::RowVectorXf row_amplitudes = amplitudes(dim, kRowDecay);
  std::shuffle(row_amplitudes.begin(), row_amplitudes.end(), random);
  RowMajorMatrix W = normal_matrix(static_cast<Eigen::Index>(options.vocab), dim, random);
  W = (W * row_amplitudes.asDiagonal() * basis).eval();
  std::normal_distribution<double> log_norm(0.0, kNormSigma);
  for (Eigen::Index t = 0; t < W.rows(); ++t)
    W.row(t) *= static_cast<float>(std::exp(log_norm(random))) / W.row(t).norm();
  W *= static_cast<float>(kLogitDeviation / logit_deviation(W, contexts));

  lean(contexts, W, random);
  return {.weight = std::move(W), .train = contexts.topRows(train), .test = contexts.bottomRows(test)};
}

}  // namespace topksoftmax::bench
