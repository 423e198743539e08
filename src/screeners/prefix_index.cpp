// SPDX-License-Identifier: Apache-2.0
#include "screeners/prefix_index.hpp"

#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>

#include "aligned_storage.hpp"
#include "io/index_reader.hpp"
#include "io/index_writer.hpp"
#include "round_outwards.hpp"
#include "rows_of.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/kernels/implementation.hpp"

namespace topksoftmax {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr std::size_t kBlockRows = kernels::PrefixBlocks::kRows;
constexpr double kUnit = 0x1p-24;  // half the spacing of floats at 1
/// Contexts outside these lengths are not bounded: their products could leave float's range.
constexpr double kShortest = 1e-20;
constexpr double kLongest = 1e20;
/// Beyond this Σ|w_j·h_j| + |b|, the exact kernel's sums may leave float's range on the way to a logit in it.
constexpr double kLargestSum = 1e38;
/// What is taken for the prefix before, or without, choosing it.
constexpr std::size_t kTypicalPrefix = 32;
/// Doubles of the build are this good at the least, relative to what they measure.
constexpr double kOutward = 1.0 + 1e-9;

constexpr std::size_t kMostWidth = 256;

/// The options that an index file records.
template <class Options, class Visit>
void visit_options(Options& options, const Visit& visit) {
  visit("prefix", options.prefix);
  visit("width", options.width);
  visit("context_sample", options.context_sample);
  visit("expected_k", options.expected_k);
}

void check(const CertifiedOptions& options) {
  if (options.width != 0 && (options.width < 4 || options.width > kMostWidth)) {
    throw Error("certified: width is " + std::to_string(options.width) + "; it must be 0 or from 4 to " +
                std::to_string(kMostWidth));
  }
  const std::size_t longest = options.width == 0 ? kMostWidth : options.width;
  if (options.prefix % 4 != 0 || options.prefix > longest) {
    throw Error("certified: prefix is " + std::to_string(options.prefix) +
                "; it must be a multiple of 4 and at most " + std::to_string(longest));
  }
}

/// The same once nothing is left open. Narrow layers have fewer coordinates than may be asked for.
void check_chosen(const CertifiedOptions& options) {
  if (options.width >= 1 && options.width <= kMostWidth && options.prefix % 4 == 0 &&
      options.prefix <= options.width) {
    return;
  }
  throw Error("certified: prefix is " + std::to_string(options.prefix) + " and width " +
              std::to_string(options.width));
}

/// A bound on the relative error of n float roundings.
double roundings(std::size_t n) {
  return 1.01 * static_cast<double>(n) * kUnit;
}

double norm(const float* x, std::size_t count) {
  constexpr std::size_t lanes = 8;  // independent sums, which compilers turn into vectors
  double sums[lanes] = {};
  std::size_t j = 0;
  for (; j + lanes <= count; j += lanes) {
    for (std::size_t i = 0; i < lanes; ++i) {
      const auto value = static_cast<double>(x[j + i]);
      sums[i] += value * value;
    }
  }
  for (; j < count; ++j) sums[0] += static_cast<double>(x[j]) * static_cast<double>(x[j]);
  for (std::size_t i = 1; i < lanes; ++i) sums[0] += sums[i];
  return std::sqrt(sums[0]);
}

/// Evenly spaced rows of m, at most `count`.
RowMajorMatrix sample(const RowMajorMatrix& m, std::size_t count) {
  const Index taken = std::min<Index>(m.rows(), static_cast<Index>(count));
  RowMajorMatrix out(taken, m.cols());
  for (Index i = 0; i < taken; ++i) out.row(i) = m.row(i * m.rows() / taken);
  return out;
}

}  // namespace

PrefixIndex::PrefixIndex(const SoftmaxLayer& layer, const RowMajorMatrix& contexts,
                         const CertifiedOptions& options)
    : options_(options) {
  check(options);
  const MatrixXd W = layer.weights().cast<double>();
  const RowMajorMatrix sampled = sample(contexts, options.context_sample);
  const CoordinateChooser chooser(W, sampled, options.coordinates);
  const auto width_for = [&](std::size_t prefix) {
    const std::size_t wanted =
        options.width != 0 ? options.width : prefix + kernels::PrefixTails::kWidthOfLine;
    return std::min({wanted, layer.dim(), kMostWidth});
  };
  use(chooser.choose(width_for(kTypicalPrefix)));
  const std::size_t prefix = options.prefix != 0
                                 ? options.prefix
                                 : choose_prefix(layer, transform_rows(W), sampled, options.expected_k);
  if (width() != width_for(prefix)) use(chooser.choose(width_for(prefix)));
  store(layer, transform_rows(W), sampled, prefix);
  options_.prefix = prefix;
  options_.width = std::max(width(), prefix);
}

PrefixIndex::PrefixIndex(const IndexReader& in) {
  visit_options(options_, in.options());
  in.check([&] { check_chosen(options_); });
  const std::size_t width = std::min(options_.width, in.dim());
  const StoredArray<float> Q = in.floats("Q", {width, in.dim()});
  const StoredArray<float> R = in.floats("R", {width, width});
  Q_ = Eigen::Map<const RowMajorMatrix>(Q.data(), static_cast<Index>(width), static_cast<Index>(in.dim()));
  R_ = Eigen::Map<const RowMajorMatrix>(R.data(), static_cast<Index>(width), static_cast<Index>(width));
  const StoredArray<double> norms = in.doubles("norms", {4});
  unorthogonality_ = norms[0];
  transform_norm_ = norms[1];
  longest_row_ = norms[2];
  largest_bias_ = norms[3];
  const StoredArray<double> weights = in.doubles("weights", {2, kTerms});
  std::copy_n(weights.data(), kTerms, prefix_weights_.begin());
  std::copy_n(weights.data() + kTerms, kTerms, tail_weights_.begin());
  prefixes_ = PrefixStore(in, options_.prefix);
  tails_.rows = in.vocab();
  tails_.width = options_.width - options_.prefix;
  if (tails_.width > 0) load_tails(in);
}

void PrefixIndex::load_tails(const IndexReader& in) {
  constexpr const char* name = "tails";
  tail_bytes_ = in.array<std::byte>(name, {tails_.rows, tails_.row_bytes()}, DataType::uint8);
  tails_.data = tail_bytes_.data();
  for (std::size_t row = 0; row < tails_.rows; ++row) {
    std::array<float, 2> scale_and_radius{};
    static_assert(sizeof(scale_and_radius) == kernels::PrefixTails::kFooter);
    std::memcpy(scale_and_radius.data(),
                tails_.data + (row + 1) * tails_.row_bytes() - sizeof(scale_and_radius),
                sizeof(scale_and_radius));
    if (scale_and_radius[0] >= 0.0F && scale_and_radius[1] >= 0.0F) continue;
    throw in.damaged(name, "has a scale or radius that is NaN or below 0 in row " + std::to_string(row));
  }
}

void PrefixIndex::save(IndexWriter& out) const {
  visit_options(options_, out.options());
  out.array("Q", {width(), dim()}, StoredArray<float>::borrow(Q_));
  out.array("R", {width(), width()}, StoredArray<float>::borrow(R_));
  out.array(
      "norms", {4},
      StoredArray<double>::own(std::vector{unorthogonality_, transform_norm_, longest_row_, largest_bias_}));
  std::vector<double> weights(prefix_weights_.begin(), prefix_weights_.end());
  weights.insert(weights.end(), tail_weights_.begin(), tail_weights_.end());
  out.array("weights", {2, kTerms}, StoredArray<double>::own(std::move(weights)));
  prefixes_.save(out);
  if (tails_.width > 0) {
    out.array("tails", {tails_.rows, tails_.row_bytes()}, tail_bytes_, DataType::uint8);
  }
}

void PrefixIndex::use(const CoordinateBasis& basis) {
  Q_ = basis.Q.cast<float>();
  R_ = basis.R.cast<float>();
  const MatrixXd stored = Q_.cast<double>();
  unorthogonality_ =
      (stored * stored.transpose() - MatrixXd::Identity(stored.rows(), stored.rows())).norm() * kOutward;
  transform_norm_ = R_.cast<double>().norm() * kOutward;
}

PrefixIndex::Coordinates PrefixIndex::transform_rows(const MatrixXd& W) const {
  const MatrixXd basis = (R_.cast<double>() * Q_.cast<double>()).transpose();  // [d×width]
  Coordinates rows;
  rows.prefixes = basis.householderQr().solve(W.transpose()).transpose();
  rows.outside = (W - rows.prefixes * basis.transpose()).rowwise().norm();
  rows.norms = W.rowwise().norm();
  return rows;
}

std::size_t PrefixIndex::choose_prefix(const SoftmaxLayer& layer, const Coordinates& rows,
                                       const RowMajorMatrix& contexts, std::size_t expected_k) const {
  const std::size_t full = width() / 4 * 4;
  if (contexts.rows() == 0) return std::min(kTypicalPrefix, full);
  // What it takes to look at a row's tail, and to score a byte of a row, in bytes of prefixes scanned:
  // streams are cheap, gathered rows are not.
  constexpr double kTail = 400.0;
  constexpr double kScoredByte = 3.0;

  const MatrixXd H = sample(contexts, 96).cast<double>();
  const MatrixXd transformed = H * (R_.cast<double>() * Q_.cast<double>()).transpose();
  const MatrixXd W = layer.weights().cast<double>();
  const VectorXd b = layer.biases().cast<double>();
  const auto k = static_cast<Index>(std::min(expected_k, layer.vocab()));
  const VectorXd outside =
      (H.rowwise().squaredNorm() - (H * Q_.cast<double>().transpose()).rowwise().squaredNorm())
          .cwiseMax(0.0)
          .cwiseSqrt();
  std::size_t best = full;
  double best_cost = std::numeric_limits<double>::infinity();
  for (const std::size_t prefix : {8U, 16U, 24U, 32U, 48U, 64U, 96U, 128U}) {
    if (prefix > full) break;
    const auto p = static_cast<Index>(prefix);
    const Index rest = rows.prefixes.cols() - p;
    const VectorXd tail = rows.prefixes.rightCols(rest).rowwise().norm();
    double bounded = 0.0;
    for (Index i = 0; i < H.rows(); ++i) {
      VectorXd logits = W * H.row(i).transpose() + b;
      const VectorXd upper = rows.prefixes.leftCols(p) * transformed.row(i).head(p).transpose() + b +
                             tail * transformed.row(i).tail(rest).norm() + rows.outside * outside[i];
      std::nth_element(logits.begin(), logits.begin() + (k - 1), logits.end(), std::greater<>());
      bounded += static_cast<double>((upper.array() >= logits[k - 1]).count());
    }
    bounded /= static_cast<double>(H.rows());
    const double cost = static_cast<double>(layer.vocab() * (prefix + 8)) + bounded * kTail +
                        0.25 * bounded * kScoredByte * static_cast<double>(layer.rows().bytes(1));
    if (cost < best_cost) {
      best_cost = cost;
      best = prefix;
    }
  }
  return best;
}

void PrefixIndex::store(const SoftmaxLayer& layer, const Coordinates& rows, const RowMajorMatrix& contexts,
                        std::size_t prefix) {
  const std::size_t vocab = layer.vocab();
  const auto p = static_cast<Index>(prefix);
  // A layer narrower than the prefix is filled up with zeros.
  MatrixXd w = MatrixXd::Zero(rows.prefixes.rows(), std::max<Index>(rows.prefixes.cols(), p));
  w.leftCols(rows.prefixes.cols()) = rows.prefixes;
  const std::size_t rest = static_cast<std::size_t>(w.cols()) - prefix;

  PrefixWriter prefixes(vocab, prefix);
  tails_.rows = vocab;
  tails_.width = rest;
  const std::shared_ptr<std::byte> tails = aligned_zeros(rest == 0 ? 0 : tails_.bytes());

  std::vector<Terms> prefix_terms(vocab);
  std::vector<Terms> tail_terms(vocab);
  const Eigen::VectorXf b = layer.biases();
  std::vector<std::int8_t> q(std::max<std::size_t>(prefix, 1));
  std::vector<double> row_values(static_cast<std::size_t>(w.cols()));
  for (std::size_t v = 0; v < vocab; ++v) {
    const auto row = w.row(static_cast<Index>(v));
    std::copy(row.begin(), row.end(), row_values.begin());
    const std::span<const double> values(row_values);
    const double scale = prefixes.put(v, b[static_cast<Index>(v)], values.first(prefix), q.data());
    double rounded = 0.0;
    double stored = 0.0;
    for (std::size_t j = 0; j < prefix; ++j) {
      const double value = scale * q[j];
      rounded += std::pow(values[j] - value, 2);
      stored += value * value;
    }
    double tail_rounded = rounded;
    if (rest > 0) {
      const std::span<const double> tail = values.subspan(prefix);
      const float tail_scale = up(largest_magnitude(tail) / 127.0);
      std::byte* const stored_tail = tails.get() + v * tails_.row_bytes();
      auto* const out = reinterpret_cast<std::int8_t*>(stored_tail);
      round_to_bytes(tail, static_cast<double>(tail_scale), out);
      std::memcpy(stored_tail + tails_.row_bytes() - kernels::PrefixTails::kFooter, &tail_scale,
                  sizeof(tail_scale));
      for (std::size_t j = 0; j < rest; ++j) {
        const double value = static_cast<double>(tail_scale) * out[j];
        tail_rounded += std::pow(tail[j] - value, 2);
        stored += value * value;
      }
    }
    const double outside = rows.outside[static_cast<Index>(v)] + 1e-12 * rows.norms[static_cast<Index>(v)];
    const double scale_of_errors =
        std::max({rows.norms[static_cast<Index>(v)], row.norm(), std::sqrt(stored)});
    prefix_terms[v] = {row.tail(static_cast<Index>(rest)).norm(), outside, std::sqrt(rounded),
                       scale_of_errors};
    tail_terms[v] = {0.0, outside, std::sqrt(tail_rounded), scale_of_errors};
    longest_row_ = std::max(longest_row_, rows.norms[static_cast<Index>(v)]);
  }
  largest_bias_ = static_cast<double>(b.cwiseAbs().maxCoeff());

  // κ² of a term is best at the ratio of what rows and contexts typically have of it.
  const auto mean_of = [](const std::vector<Terms>& terms) {
    Terms mean{};
    for (const Terms& t : terms) {
      for (std::size_t i = 0; i < kTerms; ++i) mean[i] += t[i] / static_cast<double>(terms.size());
    }
    return mean;
  };
  Terms context_prefix{};
  Terms context_tail{};
  const RowMajorMatrix typical = contexts.rows() > 0 ? sample(contexts, 256) : sample(layer.weights(), 256);
  std::vector<float> projected(width());
  std::vector<float> transformed(std::max(width(), prefix));
  for (Index i = 0; i < typical.rows(); ++i) {
    const kernels::Implementation& kernel = kernels::active();
    kernel.scan(rows_of(Q_), 0, width(), typical.row(i).data(), projected.data());
    kernel.scan(rows_of(R_), 0, width(), projected.data(), transformed.data());
    const Terms terms = context_terms(typical.row(i).data(), projected.data(), transformed.data(), 0.0);
    const double all = norm(transformed.data(), width());
    context_prefix[kLonger] +=
        norm(transformed.data() + std::min(prefix, width()), width() - std::min(prefix, width()));
    context_prefix[kRounded] += norm(transformed.data(), std::min(prefix, width()));
    context_tail[kRounded] += all;
    for (const Term term : {kOutside, kRounding}) {
      context_prefix[term] += terms[term];
      context_tail[term] += terms[term];
    }
  }
  const auto weigh = [&](const Terms& row_mean, Terms context_sum) {
    Terms weights{};
    double row_total = 0.0;
    double context_total = 0.0;
    for (std::size_t i = 0; i < kTerms; ++i) {
      context_sum[i] /= static_cast<double>(typical.rows());
      row_total += row_mean[i];
      context_total += context_sum[i];
    }
    const auto share = [](double part, double total) {
      return total > 0.0 ? std::max(part / total, 1e-6) : 1.0;
    };
    for (std::size_t i = 0; i < kTerms; ++i) {
      weights[i] = std::sqrt(share(row_mean[i], row_total) / share(context_sum[i], context_total));
    }
    return weights;
  };
  prefix_weights_ = weigh(mean_of(prefix_terms), context_prefix);
  tail_weights_ = weigh(mean_of(tail_terms), context_tail);

  const auto radius = [](const Terms& terms, const Terms& weights) {
    double sum = 0.0;
    for (std::size_t i = 0; i < kTerms; ++i) sum += std::pow(terms[i] / weights[i], 2);
    return std::sqrt(sum) * kOutward;
  };
  for (std::size_t v = 0; v < vocab; ++v) {
    prefixes.put_radius(v, radius(prefix_terms[v], prefix_weights_));
    if (rest > 0) {
      const float tail_radius = up(radius(tail_terms[v], tail_weights_));
      std::memcpy(tails.get() + (v + 1) * tails_.row_bytes() - sizeof(tail_radius), &tail_radius,
                  sizeof(tail_radius));
    }
  }
  prefixes_ = std::move(prefixes).finish();
  tail_bytes_ = {{tails.get(), rest == 0 ? 0 : tails_.bytes()}, tails};
  tails_.data = tail_bytes_.data();
}

PrefixIndex::Terms PrefixIndex::context_terms(const float* h, const float* projected,
                                              const float* transformed, double quantum) const {
  const double length = norm(h, dim());
  const double projected_length = norm(projected, width());
  const double transformed_length = norm(transformed, width());
  const double root_width = std::sqrt(static_cast<double>(width()));
  // c: width dot products of d terms with rows of length about 1; h': width of width terms.
  const double projection_error = roundings(dim() + 2) * root_width * (1.0 + unorthogonality_) * length;
  const double transform_error =
      transform_norm_ * (projection_error + roundings(width() + 2) * projected_length);
  const double inside = std::max(projected_length - projection_error, 0.0);
  const double outside = length * length * kOutward - inside * inside / (1.0 + unorthogonality_);
  Terms terms{};
  terms[kOutside] = std::sqrt(std::max(outside, 0.0));
  // The exact kernel's own roundings, those of h', of ĥ₁, of the estimate, and of the long prefix's product.
  terms[kRounding] = roundings(dim() + 3) * length + transform_error +
                     0.51 * quantum * std::sqrt(static_cast<double>(prefixes_.blocks().width)) +
                     roundings(width() + 6) * transformed_length;
  return terms;
}

PrefixIndex::Bounds PrefixIndex::bound(const Query& query, Workspace& workspace) const {
  Bounds bounds;
  bound_batch(query, 0, {&bounds, 1}, workspace);
  return bounds;
}

void PrefixIndex::bound_batch(const Query& query, std::size_t stride, std::span<Bounds> batch,
                              Workspace& workspace) const {
  const kernels::PrefixBlocks& all = prefixes_.blocks();
  const std::size_t room = all.blocks() * kBlockRows;
  auto* const coordinates = workspace.screen[0].get<float>(batch.size() * coordinate_room());
  auto* const shorts = workspace.screen[1].get<std::int16_t>(batch.size() * all.width);
  auto* const estimates = workspace.screen[2].get<float>(batch.size() * room);
  auto* const radii = workspace.screen[3].get<float>(batch.size() * room);
  kernels::PrefixContext contexts[kBatch];
  for (std::size_t q = 0; q < batch.size(); ++q) {
    batch[q].estimates = estimates + q * room;
    batch[q].radii = radii + q * room;
    contexts[q] =
        prepare(query.h + q * stride, coordinates + q * coordinate_room(), shorts + q * all.width, batch[q]);
  }
  // All contexts meet a part of the prefixes while it is in the second cache.
  const std::size_t part = std::max<std::size_t>(kPartBytes / all.block_bytes(), 1);
  for (std::size_t first = 0; first < all.blocks(); first += part) {
    const kernels::PrefixBlocks blocks = all.part(first, std::min(part, all.blocks() - first));
    for (std::size_t q = 0; q < batch.size(); ++q) {
      kernels::active().prefix_bounds(blocks, contexts[q], batch[q].estimates + first * kBlockRows,
                                      batch[q].radii + first * kBlockRows);
    }
  }
  for (const Bounds& bounds : batch) kernels::leave_out_edited(query.edits, rows(), bounds.estimates);
}

std::size_t PrefixIndex::coordinate_room() const {
  // Zeros behind the coordinates: up to the prefix, and as the tails want them.
  return 2 * std::max(width(), prefixes_.blocks().width) + kernels::PrefixTails::kLine;
}

kernels::PrefixContext PrefixIndex::prepare(const float* h, float* coordinates, std::int16_t* n,
                                            Bounds& bounds) const {
  const kernels::Implementation& kernel = kernels::active();
  const std::size_t prefix = prefixes_.blocks().width;
  float* const projected = coordinates;
  float* const transformed = projected + width();
  kernel.scan(rows_of(Q_), 0, width(), h, projected);
  kernel.scan(rows_of(R_), 0, width(), projected, transformed);
  std::fill(transformed + width(), coordinates + coordinate_room(), 0.0F);
  bounds.tail = {transformed + prefix, 0.0F};
  const double length = norm(h, dim());
  bounds.usable =
      length >= kShortest && length <= kLongest && longest_row_ * length + largest_bias_ <= kLargestSum;

  const float quantum = round_to_shorts(transformed, prefix, n);
  // A prefix too short to be divided counts as zero, wrong by as much as its peak.
  const double error_quantum = quantum > 0.0F ? static_cast<double>(quantum) : 2.0 * kTooShortToRound;
  Terms terms = context_terms(h, projected, transformed, error_quantum);
  const std::size_t used = std::min(prefix, width());
  const auto radius = [&terms](const Terms& weights) {
    double sum = 0.0;
    for (std::size_t i = 0; i < kTerms; ++i) sum += std::pow(terms[i] * weights[i], 2);
    return up(std::sqrt(sum) * (1.0 + 0x1p-18));  // and the rounding of estimate + radius
  };
  terms[kLonger] = norm(transformed + used, width() - used);
  terms[kRounded] = norm(transformed, used);
  const float prefix_radius = radius(prefix_weights_);
  terms[kLonger] = 0.0;
  terms[kRounded] = norm(transformed, width());
  bounds.tail.radius = radius(tail_weights_);
  return {n, quantum, prefix_radius};
}

PrefixIndex::Survivors PrefixIndex::survivors(const Bounds& bounds, float threshold, bool sums,
                                              std::size_t most, Workspace& workspace) const {
  const kernels::Implementation& kernel = kernels::active();
  auto* const ids = workspace.candidates.get<TokenId>(rows() + kernels::kSlack);
  Survivors result;
  std::size_t first = 0;
  if (sums) {
    const kernels::Partition partition =
        kernel.partition(bounds.estimates, bounds.radii, rows(), threshold, ids);
    first = partition.reaching;
    result.outside = partition.rest;
  } else {
    first = kernel.reaching(bounds.estimates, bounds.radii, rows(), threshold, ids);
  }
  result.ids = {ids, first};
  if (tails_.width == 0 || first > most) return result;

  auto* const estimates = workspace.screen[4].get<float>(2 * first);
  float* const radii = estimates + first;
  kernel.tail_bounds(tails_, bounds.tail, bounds.estimates, ids, first, estimates, radii);
  result.by_tails = first;
  result.bytes_read = first * tails_.row_bytes();
  std::size_t kept = 0;
  std::size_t dropped = 0;  // moved to the front, to be summed
  for (std::size_t i = 0; i < first; ++i) {
    const bool below = estimates[i] + radii[i] < threshold;
    estimates[dropped] = estimates[i];
    radii[dropped] = radii[i];
    dropped += below ? 1 : 0;
    ids[kept] = ids[i];
    kept += below ? 0 : 1;
  }
  result.ids = {ids, kept};
  if (sums) {
    const kernels::SumBounds more = kernel.sum_exp_bounds(estimates, radii, dropped, threshold);
    result.outside.low += more.low;
    result.outside.high += more.high;
  }
  return result;
}

std::size_t PrefixIndex::bytes() const {
  return prefixes_.blocks().bytes() + transform_bytes() + (tails_.width == 0 ? 0 : tails_.bytes());
}

}  // namespace topksoftmax
