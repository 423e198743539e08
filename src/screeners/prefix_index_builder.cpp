// SPDX-License-Identifier: Apache-2.0
#include "screeners/prefix_index_builder.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "aligned_storage.hpp"
#include "round_outwards.hpp"
#include "screeners/bound_chooser.hpp"
#include "screeners/bound_coordinates.hpp"
#include "screeners/coordinate_chooser.hpp"
#include "screeners/prefix_options.hpp"
#include "training/evenly_spaced.hpp"

namespace topksoftmax {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

/// Contexts that the choices are made by.
constexpr std::size_t kChoosingContexts = 96;

/// What rows and contexts have of each term; contexts in the mean.
struct Shares {
  std::vector<BoundTerms> rows;
  BoundTerms contexts{};
};

/// κ² of a term is best at the ratio of what rows and contexts typically have of it.
BoundTerms weigh(const Shares& shares) {
  BoundTerms row_mean{};
  for (const BoundTerms& terms : shares.rows) {
    for (std::size_t i = 0; i < kBoundTerms; ++i) {
      row_mean[i] += terms[i] / static_cast<double>(shares.rows.size());
    }
  }
  const auto total = [](const BoundTerms& terms) {
    double sum = 0.0;
    for (const double term : terms) sum += term;
    return sum;
  };
  const auto share = [](double part, double whole) {
    return whole > 0.0 ? std::max(part / whole, 1e-6) : 1.0;
  };
  BoundTerms weights{};
  for (std::size_t i = 0; i < kBoundTerms; ++i) {
    weights[i] =
        std::sqrt(share(row_mean[i], total(row_mean)) / share(shares.contexts[i], total(shares.contexts)));
  }
  return weights;
}

double radius(const BoundTerms& terms, const BoundTerms& weights) {
  double sum = 0.0;
  for (std::size_t i = 0; i < kBoundTerms; ++i) sum += std::pow(terms[i] / weights[i], 2);
  return std::sqrt(sum) * kOutward;
}

/// Stores the rows of a layer, in the order of the index.
class RowStore {
 public:
  RowStore(const SoftmaxLayer& layer, const RowCoordinates& rows, std::size_t prefix)
      : prefix_(prefix),
        // A layer narrower than the prefix is filled up with zeros.
        coordinates_(MatrixXd::Zero(rows.inside.rows(),
                                    std::max<Index>(rows.inside.cols(), static_cast<Index>(prefix)))),
        rows_(rows),
        biases_(layer.biases()),
        prefixes_(layer.vocab(), prefix) {
    coordinates_.leftCols(rows.inside.cols()) = rows.inside;
    tails_.rows = layer.vocab();
    tails_.width = static_cast<std::size_t>(coordinates_.cols()) - prefix;
    tail_bytes_ = aligned_zeros(tails_.width == 0 ? 0 : tails_.bytes());
    by_prefix_.rows.resize(layer.vocab());
    by_tails_.rows.resize(layer.vocab());
  }

  void put(TokenId token, std::size_t place) {
    const auto row = coordinates_.row(token);
    values_.assign(row.begin(), row.end());
    q_.resize(std::max<std::size_t>(prefix_, 1));
    const std::span<const double> values(values_);
    const double scale = prefixes_.put(place, biases_[token], values.first(prefix_), q_.data());
    double rounded = 0.0;
    double stored = 0.0;
    const auto count = [&rounded, &stored](double value, double kept) {
      rounded += std::pow(value - kept, 2);
      stored += kept * kept;
    };
    for (std::size_t j = 0; j < prefix_; ++j) count(values[j], scale * q_[j]);
    const double prefix_rounded = rounded;
    if (tails_.width > 0) {
      const std::span<const double> tail = values.subspan(prefix_);
      const auto [tail_scale, q] = put_tail(place, tail);
      for (std::size_t j = 0; j < tail.size(); ++j) count(tail[j], static_cast<double>(tail_scale) * q[j]);
    }
    const double norm = rows_.norms[token];
    const double outside = rows_.outside[token] + 1e-12 * norm;
    const double scale_of_errors = std::max({norm, row.norm(), std::sqrt(stored)});
    by_prefix_.rows[place] = {row.tail(static_cast<Index>(tails_.width)).norm(), outside,
                              std::sqrt(prefix_rounded), scale_of_errors};
    by_tails_.rows[place] = {0.0, outside, std::sqrt(rounded), scale_of_errors};
  }

  /// Makes radii of the terms, with weights that suit contexts like these.
  void finish(const ContextCoordinates& contexts, PrefixIndexParts& parts) && {
    const auto p = std::min<Index>(static_cast<Index>(prefix_), contexts.inside.cols());
    by_prefix_.contexts = {contexts.inside.rightCols(contexts.inside.cols() - p).rowwise().norm().sum(),
                           contexts.outside.sum(), contexts.inside.leftCols(p).rowwise().norm().sum(),
                           contexts.errors.sum()};
    by_tails_.contexts = {0.0, contexts.outside.sum(), contexts.inside.rowwise().norm().sum(),
                          contexts.errors.sum()};
    parts.prefix_weights = weigh(by_prefix_);
    parts.tail_weights = weigh(by_tails_);
    for (std::size_t place = 0; place < tails_.rows; ++place) {
      prefixes_.put_radius(place, radius(by_prefix_.rows[place], parts.prefix_weights));
      if (tails_.width == 0) continue;
      const float tail_radius = up(radius(by_tails_.rows[place], parts.tail_weights));
      std::memcpy(tail_bytes_.get() + (place + 1) * tails_.row_bytes() - sizeof(tail_radius), &tail_radius,
                  sizeof(tail_radius));
    }
    parts.prefixes = std::move(prefixes_).finish();
    const std::shared_ptr<const std::byte> owner = std::move(tail_bytes_);
    parts.tail_bytes = {{owner.get(), tails_.width == 0 ? 0 : tails_.bytes()}, owner};
    parts.tails = tails_;
    parts.tails.data = owner.get();
  }

 private:
  std::pair<float, const std::int8_t*> put_tail(std::size_t place, std::span<const double> tail) {
    const float scale = up(largest_magnitude(tail) / 127.0);
    std::byte* const stored = tail_bytes_.get() + place * tails_.row_bytes();
    auto* const q = reinterpret_cast<std::int8_t*>(stored);
    round_to_bytes(tail, static_cast<double>(scale), q);
    std::memcpy(stored + tails_.row_bytes() - kernels::PrefixTails::kFooter, &scale, sizeof(scale));
    return {scale, q};
  }

  std::size_t prefix_;
  MatrixXd coordinates_;  ///< [V×max(width, prefix)]
  const RowCoordinates& rows_;
  Eigen::VectorXf biases_;
  PrefixWriter prefixes_;
  kernels::PrefixTails tails_;
  AlignedStorage tail_bytes_;
  Shares by_prefix_;
  Shares by_tails_;
  std::vector<double> values_;
  std::vector<std::int8_t> q_;
};

/// PrefixIndexParts::outside_position, in the median over contexts.
double typical_position(const PrefixIndex& index, const Trials& trials) {
  Workspace workspace;
  std::vector<double> positions;
  for (Index i = 0; i < trials.contexts.rows(); ++i) {
    Query query;
    query.h = trials.contexts.row(i).data();
    const PrefixIndex::Bounds bounds = index.bound(query, workspace);
    if (!bounds.usable) continue;
    const auto threshold = static_cast<float>(trials.thresholds[i]);
    const auto [ids, outside, bounded, bytes_read] =
        index.survivors(query, bounds, threshold, index.rows(), workspace);
    Eigen::ArrayXd terms = (trials.logits.col(i).array() - static_cast<double>(threshold)).exp();
    for (const TokenId id : ids) terms[id] = 0.0;
    const double low = std::log(outside.low);
    const double position = (std::log(terms.sum()) - low) / (std::log(outside.high) - low);
    if (position >= 0.0 && position <= 1.0) positions.push_back(position);  // no bound is 0
  }
  if (positions.empty()) return PrefixIndexParts().outside_position;
  const auto middle = positions.begin() + static_cast<std::ptrdiff_t>(positions.size() / 2);
  std::nth_element(positions.begin(), middle, positions.end());
  return *middle;
}

/// Some of the contexts; without any, rows of W stand for them.
RowMajorMatrix likely_contexts(const SoftmaxLayer& layer, const RowMajorMatrix& contexts) {
  constexpr std::size_t kMany = 256;
  if (contexts.rows() > 0) return evenly_spaced(Contexts::of(contexts), kMany);
  const RowMajorMatrix W = layer.weights();
  return evenly_spaced(Contexts::of(W), kMany);
}

}  // namespace

PrefixIndex build_prefix_index(const SoftmaxLayer& layer, const Contexts& contexts,
                               const CertifiedOptions& options) {
  check(options);
  const MatrixXd W = layer.weights().cast<double>();
  const RowMajorMatrix sampled = evenly_spaced(contexts, options.context_sample);
  const CoordinateChooser coordinates(W, sampled, options.coordinates);
  const Trials trials(layer, W, evenly_spaced(Contexts::of(sampled), kChoosingContexts), options.expected_k);
  BoundChooser::Choice choice = BoundChooser(layer, W, coordinates, trials, options).choose();
  PrefixIndexParts parts;
  parts.options = choice.options;
  parts.transform = std::move(choice.transform);
  const RowCoordinates rows(W, parts.transform);
  const ContextCoordinates typical(likely_contexts(layer, sampled), parts.transform);
  const VectorXd biases = layer.biases().cast<double>();
  const bool boxed = parts.options.boxes == BoundBoxes::always;
  if (boxed) {
    parts.order = RowOrder(StoredArray<TokenId>::own(similar_rows(biases, rows, typical)));
  }
  parts.longest_row = rows.norms.maxCoeff();
  parts.largest_bias = biases.cwiseAbs().maxCoeff();
  RowStore store(layer, rows, parts.options.prefix);
  for (std::size_t place = 0; place < layer.vocab(); ++place) store.put(parts.order.token(place), place);
  std::move(store).finish(typical, parts);
  if (boxed) parts.boxes = PrefixBoxStore(parts.prefixes);
  parts.outside_position = typical_position(PrefixIndex(parts), trials);
  return PrefixIndex(std::move(parts));
}

}  // namespace topksoftmax
