// SPDX-License-Identifier: Apache-2.0
#include "harness/measuring/concentration.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>

#include "harness/text/table.hpp"

namespace topksoftmax::bench {
namespace {

constexpr Eigen::Index kMostContexts = 4096;

/// More directions than are asked for, so that the last of these converge too.
constexpr Eigen::Index kSpare = 32;

constexpr int kSteps = 4;

Eigen::MatrixXf evenly_spaced(const RowMajorMatrix& contexts) {
  const Eigen::Index count = std::min(contexts.rows(), kMostContexts);
  Eigen::MatrixXf chosen(count, contexts.cols());
  for (Eigen::Index i = 0; i < count; ++i) chosen.row(i) = contexts.row(i * contexts.rows() / count);
  return chosen;
}

Eigen::MatrixXf orthonormal(const Eigen::MatrixXf& columns) {
  return Eigen::HouseholderQR<Eigen::MatrixXf>(columns).householderQ() *
         Eigen::MatrixXf::Identity(columns.rows(), columns.cols());
}

/// The leading directions of these contexts [d × at most 160], first that of most energy.
Eigen::MatrixXf leading_directions(const Eigen::MatrixXf& contexts) {
  const Eigen::Index wanted = static_cast<Eigen::Index>(Concentration::directions.back()) + kSpare;
  const Eigen::Index count = std::min({wanted, contexts.cols(), contexts.rows()});
  std::mt19937 random(1);
  Eigen::MatrixXf basis(contexts.cols(), count);
  for (float& value : basis.reshaped()) value = static_cast<float>(random()) * 0x1p-31F - 1.0F;
  basis = orthonormal(basis);
  for (int step = 0; step < kSteps; ++step) {
    const Eigen::MatrixXf seen = contexts * basis;
    basis = orthonormal(contexts.transpose() * seen);
  }
  const Eigen::MatrixXf seen = contexts * basis;
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXf> order(seen.transpose() * seen);
  return basis * order.eigenvectors().rowwise().reverse();
}

std::array<double, 4> shares(const Eigen::MatrixXf& train, const Eigen::MatrixXf& test) {
  const Eigen::MatrixXf seen = test * leading_directions(train);
  const Eigen::VectorXd energy = seen.cast<double>().colwise().squaredNorm().transpose();
  const double all = test.cast<double>().squaredNorm();
  std::array<double, 4> shares = {};
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const auto count = std::min(static_cast<Eigen::Index>(Concentration::directions[i]), energy.size());
    shares[i] = all > 0.0 ? std::min(energy.head(count).sum() / all, 1.0) : 1.0;
  }
  return shares;
}

/// How many of the numbers of directions tell something: the last is the first that reaches all there are.
std::size_t telling(const Concentration& concentration) {
  std::size_t count = 1;
  while (count < concentration.plain.size() && Concentration::directions[count - 1] < concentration.found) {
    ++count;
  }
  return count;
}

/// "16, 32 and 50" of 50.
std::string counts_of(const Concentration& concentration) {
  const std::size_t count = telling(concentration);
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) text += i + 1 < count ? ", " : " and ";
    text += std::to_string(std::min(Concentration::directions[i], concentration.found));
  }
  return text;
}

std::string percents(std::span<const double> shares) {
  std::string text;
  for (const double share : shares) text += (text.empty() ? "" : ", ") + fixed(100.0 * share, 0);
  return text;
}

}  // namespace

Concentration concentration_of(const RowMajorMatrix& train, const RowMajorMatrix& test) {
  Concentration found;
  if (train.rows() == 0 || test.rows() == 0) {
    found.plain.fill(std::numeric_limits<double>::quiet_NaN());
    found.centred = found.plain;
    return found;
  }
  Eigen::MatrixXf learned = evenly_spaced(train);
  Eigen::MatrixXf judged = evenly_spaced(test);
  found.found = static_cast<std::size_t>(std::min(learned.rows(), learned.cols()));
  found.plain = shares(learned, judged);
  const Eigen::RowVectorXf mean = learned.colwise().mean();
  learned.rowwise() -= mean;
  judged.rowwise() -= mean;
  found.centred = shares(learned, judged);
  return found;
}

std::string describe(const Concentration& concentration) {
  if (std::isnan(concentration.plain.front())) return {};
  const std::size_t count = telling(concentration);
  return "energy of the contexts in their " + counts_of(concentration) +
         " leading directions: " + percents(std::span(concentration.plain).first(count)) +
         " %; without their mean: " + percents(std::span(concentration.centred).first(count)) + " %";
}

nlohmann::ordered_json to_json(const Concentration& concentration) {
  return {{"directions", Concentration::directions},
          {"energy", concentration.plain},
          {"energy_centred", concentration.centred}};
}

}  // namespace topksoftmax::bench
