// SPDX-License-Identifier: Apache-2.0
#include "screeners/prefix_index_builder.hpp"

#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "aligned_storage.hpp"
#include "round_outwards.hpp"
#include "screeners/coordinate_chooser.hpp"
#include "screeners/prefix_options.hpp"
#include "training/evenly_spaced.hpp"

namespace topksoftmax {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr std::size_t kBlockRows = kernels::PrefixBlocks::kRows;
/// What is taken for the prefix before, or without, choosing it.
constexpr std::size_t kTypicalPrefix = 32;
/// Leading coordinates that say which rows are similar.
constexpr std::size_t kSimilarWidth = 16;
/// Contexts that the choices are made by.
constexpr std::size_t kChoosingContexts = 96;

/// A few contexts with all their logits, to see what an index makes of them.
struct Trials {
  RowMajorMatrix contexts;  ///< [n×d]
  MatrixXd logits;          ///< [V×n]
};

/// A layer's rows in the coordinates of the index.
struct RowCoordinates {
  RowCoordinates(const MatrixXd& W, const ContextTransform& transform) {
    const MatrixXd basis = transform.basis();
    inside = basis.householderQr().solve(W.transpose()).transpose();
    outside = (W - inside * basis.transpose()).rowwise().norm();
    norms = W.rowwise().norm();
  }

  MatrixXd inside;   ///< w' [V×width]
  VectorXd outside;  ///< ‖w⊥‖ [V]
  VectorXd norms;    ///< ‖w‖ [V]
};

/// Contexts in the coordinates of the index.
struct ContextCoordinates {
  ContextCoordinates(const RowMajorMatrix& contexts, const ContextTransform& transform)
      : H(contexts.cast<double>()) {
    inside = H * transform.basis();
    std::vector<float> projected(transform.room());
    std::vector<float> transformed(transform.room());
    outside.resize(H.rows());
    errors.resize(H.rows());
    for (Index i = 0; i < H.rows(); ++i) {
      transform.apply(contexts.row(i).data(), projected.data(), transformed.data());
      const auto sizes = transform.lengths(contexts.row(i).data(), projected.data(), transformed.data());
      outside[i] = transform.outside(sizes);
      errors[i] = transform.error(sizes);
    }
  }

  MatrixXd H;        ///< [n×d]
  MatrixXd inside;   ///< h' [n×width]
  VectorXd outside;  ///< ‖h⊥‖ [n]
  VectorXd errors;   ///< E [n]
};

/// Rows that are near to each other where contexts differ, in blocks.
std::vector<TokenId> similar_rows(const VectorXd& biases, const RowCoordinates& rows,
                                  const ContextCoordinates& contexts) {
  const Index width = std::min<Index>(rows.inside.cols(), kSimilarWidth);
  const Index rest = rows.inside.cols() - width;
  const auto root_mean_square = [](const auto& x) {
    return std::sqrt(x.squaredNorm() / static_cast<double>(std::max<Index>(x.rows(), 1)));
  };
  MatrixXd points(rows.inside.rows(), width + 3);
  for (Index j = 0; j < width; ++j) {
    points.col(j) = rows.inside.col(j) * root_mean_square(contexts.inside.col(j));
  }
  points.col(width) = biases;
  points.col(width + 1) =
      rows.inside.rightCols(rest).rowwise().norm() * root_mean_square(contexts.inside.rightCols(rest));
  points.col(width + 2) = rows.outside * root_mean_square(contexts.outside);
  return similar_rows_together(points, kBlockRows);
}

double kth_largest(VectorXd values, std::size_t k) {
  const auto kth = values.begin() + static_cast<Index>(k - 1);
  std::nth_element(values.begin(), kth, values.end(), std::greater<>());
  return *kth;
}

/// How many blocks and rows a prefix lets pass, in the mean over some contexts.
struct Passing {
  double boxes = 0.0;
  double rows = 0.0;
};

Passing count_passing(const RowCoordinates& rows, const VectorXd& biases, const MatrixXd& logits,
                      const ContextCoordinates& contexts, std::span<const TokenId> order, std::size_t prefix,
                      std::size_t k) {
  const auto p = static_cast<Index>(prefix);
  const Index rest = rows.inside.cols() - p;
  const Index vocab = rows.inside.rows();
  const Index blocks = (vocab + static_cast<Index>(kBlockRows) - 1) / static_cast<Index>(kBlockRows);
  const VectorXd tails = rows.inside.rightCols(rest).rowwise().norm();
  // Columns: the coordinates, bias, ‖w'₂‖ and ‖w⊥‖, which a context meets with h'₁, 1, ‖h'₂‖ and ‖h⊥‖.
  MatrixXd low = MatrixXd::Constant(blocks, p + 3, std::numeric_limits<double>::infinity());
  MatrixXd high = -low;
  MatrixXd points(vocab, p + 3);
  points << rows.inside.leftCols(p), biases, tails, rows.outside;
  for (Index place = 0; place < vocab; ++place) {
    const Index block = place / static_cast<Index>(kBlockRows);
    const auto row = points.row(order[static_cast<std::size_t>(place)]);
    low.row(block) = low.row(block).cwiseMin(row);
    high.row(block) = high.row(block).cwiseMax(row);
  }
  Passing passing;
  VectorXd h(p + 3);
  for (Index i = 0; i < contexts.H.rows(); ++i) {
    h << contexts.inside.row(i).head(p).transpose(), 1.0, contexts.inside.row(i).tail(rest).norm(),
        contexts.outside[i];
    const double threshold = kth_largest(logits.col(i), k);
    passing.rows += static_cast<double>(((points * h).array() >= threshold).count());
    const VectorXd upper = high * h.cwiseMax(0.0) + low * h.cwiseMin(0.0);
    passing.boxes += static_cast<double>((upper.array() >= threshold).count());
  }
  passing.rows /= static_cast<double>(contexts.H.rows());
  passing.boxes /= static_cast<double>(contexts.H.rows());
  return passing;
}

/// Chooses the prefix, and whether to have boxes, where they are left open.
void choose(const SoftmaxLayer& layer, const MatrixXd& W, const ContextTransform& transform,
            const Trials& trials, CertifiedOptions& options) {
  const std::size_t full = std::max<std::size_t>(transform.width() / 4 * 4, 4);
  if (trials.contexts.rows() == 0) {
    if (options.prefix == 0) options.prefix = std::min(kTypicalPrefix, full);
    if (options.boxes == BoundBoxes::automatic) options.boxes = BoundBoxes::never;
    return;
  }
  // In bytes of prefixes that are scanned: what a row takes whatever its prefix, one that is looked at by its
  // tail, and a byte of one that is scored: streams are cheap, gathered rows are not.
  constexpr double kRow = 24.0;
  constexpr double kTail = 400.0;
  constexpr double kScoredByte = 3.0;
  /// What a row of a box that is opened takes, of what it does where all are read in their order.
  constexpr double kOpened = 1.5;

  const RowCoordinates rows(W, transform);
  const ContextCoordinates some(trials.contexts, transform);
  const VectorXd biases = layer.biases().cast<double>();
  const std::size_t k = std::min(options.expected_k, layer.vocab());
  const std::vector<TokenId> order = similar_rows(biases, rows, some);
  const auto vocab = static_cast<double>(layer.vocab());
  const CertifiedOptions asked = options;
  double least = std::numeric_limits<double>::infinity();
  std::vector<std::size_t> prefixes = {8, 16, 24, 32, 48, 64, 96, 128};
  if (asked.prefix != 0) prefixes = {asked.prefix};
  for (const std::size_t asked_prefix : prefixes) {
    const std::size_t prefix = std::min(asked_prefix, full);
    const Passing passing =
        count_passing(rows, biases, trials.logits, some, order, std::min(prefix, transform.width()), k);
    const auto row_cost = static_cast<double>(prefix) + kRow;
    const double later =
        passing.rows * (kTail + 0.25 * kScoredByte * static_cast<double>(layer.rows().bytes(1)));
    const double plain = vocab * row_cost;
    const double boxed = (2.0 * vocab / static_cast<double>(kBlockRows) +
                          kOpened * passing.boxes * static_cast<double>(kBlockRows)) *
                         row_cost;
    const auto consider = [&](BoundBoxes boxes, double cost) {
      if (asked.boxes != BoundBoxes::automatic && asked.boxes != boxes) return;
      if (cost >= least) return;
      least = cost;
      options.prefix = asked.prefix != 0 ? asked.prefix : prefix;
      options.boxes = boxes;
    };
    consider(BoundBoxes::never, plain + later);
    consider(BoundBoxes::always, boxed + later);
    if (prefix != asked_prefix || prefix >= full) break;
  }
}

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
double typical_position(const PrefixIndex& index, const Trials& trials, std::size_t k) {
  Workspace workspace;
  std::vector<double> positions;
  for (Index i = 0; i < trials.contexts.rows(); ++i) {
    Query query;
    query.h = trials.contexts.row(i).data();
    const PrefixIndex::Bounds bounds = index.bound(query, workspace);
    if (!bounds.usable) continue;
    const auto threshold = static_cast<float>(kth_largest(trials.logits.col(i), k));
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
  const CoordinateChooser chooser(W, sampled, options.coordinates);
  const auto width_for = [&](std::size_t prefix) {
    // As many as lie in one cache line behind the prefix; those that are computed at a time, whole.
    const std::size_t line = prefix + kernels::PrefixTails::kWidthOfLine;
    const std::size_t wanted = options.width != 0 ? options.width : line / kernels::kSlack * kernels::kSlack;
    return std::min({wanted, layer.dim(), kMostBoundWidth});
  };
  PrefixIndexParts parts;
  parts.options = options;
  parts.transform = ContextTransform(chooser.choose(width_for(kTypicalPrefix)));
  Trials trials = {evenly_spaced(Contexts::of(sampled), kChoosingContexts), {}};
  const VectorXd biases = layer.biases().cast<double>();
  trials.logits = (W * trials.contexts.cast<double>().transpose()).colwise() + biases;
  choose(layer, W, parts.transform, trials, parts.options);
  const std::size_t prefix = parts.options.prefix;
  if (parts.transform.width() != width_for(prefix)) {
    parts.transform = ContextTransform(chooser.choose(width_for(prefix)));
  }
  parts.options.width = std::max(parts.transform.width(), prefix);

  const RowCoordinates rows(W, parts.transform);
  const ContextCoordinates typical(likely_contexts(layer, sampled), parts.transform);
  const bool boxed = parts.options.boxes == BoundBoxes::always;
  if (boxed) {
    parts.order = RowOrder(StoredArray<TokenId>::own(similar_rows(biases, rows, typical)));
  }
  parts.longest_row = rows.norms.maxCoeff();
  parts.largest_bias = biases.cwiseAbs().maxCoeff();
  RowStore store(layer, rows, prefix);
  for (std::size_t place = 0; place < layer.vocab(); ++place) store.put(parts.order.token(place), place);
  std::move(store).finish(typical, parts);
  if (boxed) parts.boxes = PrefixBoxStore(parts.prefixes);
  parts.outside_position =
      typical_position(PrefixIndex(parts), trials, std::min(options.expected_k, layer.vocab()));
  return PrefixIndex(std::move(parts));
}

}  // namespace topksoftmax
