// SPDX-License-Identifier: Apache-2.0
#include "screeners/prefix_index.hpp"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <string>

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
/// Doubles of the build are this good at the least, relative to what they measure.
constexpr double kOutward = 1.0 + 1e-9;

/// A bound on the relative error of n float roundings.
double roundings(std::size_t n) {
  return 1.01 * static_cast<double>(n) * kUnit;
}

float up(double x) {
  const auto nearest = static_cast<float>(x);
  return static_cast<double>(nearest) >= x ? nearest
                                           : std::nextafter(nearest, std::numeric_limits<float>::infinity());
}

/// The least bfloat16 that is not below x ≥ 0, as its bits.
std::uint16_t bfloat16_up(double x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(up(x));
  return static_cast<std::uint16_t>((bits + 0xffffU) >> 16);
}

double bfloat16_value(std::uint16_t bits) {
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
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

/// Square root of a positive semidefinite matrix, or of its inverse; small eigenvalues are lifted so that it
/// exists.
MatrixXd power(const MatrixXd& S, double exponent) {
  const Eigen::SelfAdjointEigenSolver<MatrixXd> eigen(S);
  const double lift = 1e-3 * eigen.eigenvalues().sum() / static_cast<double>(S.rows());
  VectorXd values = eigen.eigenvalues().cwiseMax(0.0);
  values.array() += std::max(lift, std::numeric_limits<double>::min());
  return eigen.eigenvectors() * values.array().pow(exponent).matrix().asDiagonal() *
         eigen.eigenvectors().transpose();
}

MatrixXd normalized(MatrixXd S) {
  const double trace = S.trace();
  if (trace > 0.0) S /= trace;
  return S;
}

kernels::Rows rows_of(const RowMajorMatrix& m) {
  kernels::Rows rows;
  rows.data = m.data();
  rows.count = static_cast<std::size_t>(m.rows());
  rows.dim = rows.stride = static_cast<std::size_t>(m.cols());
  return rows;
}

/// Evenly spaced rows of m, at most `count`.
RowMajorMatrix sample(const RowMajorMatrix& m, std::size_t count) {
  const Index taken = std::min<Index>(m.rows(), static_cast<Index>(count));
  RowMajorMatrix out(taken, m.cols());
  for (Index i = 0; i < taken; ++i) out.row(i) = m.row(i * m.rows() / taken);
  return out;
}

/// int8 values and their scale: row ≈ scale·q.
template <class Row>
void quantize(const Row& row, double scale, std::int8_t* q) {
  for (Index j = 0; j < row.size(); ++j) {
    const double x = scale > 0.0 ? row[j] / scale : 0.0;
    q[j] = static_cast<std::int8_t>(std::lround(std::clamp(x, -127.0, 127.0)));
  }
}

template <class Row>
double largest(const Row& row) {
  return row.size() == 0 ? 0.0 : row.cwiseAbs().maxCoeff();
}

}  // namespace

void PrefixIndex::Free::operator()(std::byte* p) const {
  ::operator delete (p, std::align_val_t{64});
}

PrefixIndex::PrefixIndex(const SoftmaxLayer& layer, const RowMajorMatrix& contexts,
                         const CertifiedOptions& options) {
  if (options.width < 4 || options.width > kernels::PrefixBlocks::kMaxWidth) {
    throw Error("certified: width is " + std::to_string(options.width) + "; it must be from 4 to " +
                std::to_string(kernels::PrefixBlocks::kMaxWidth));
  }
  if (options.prefix % 4 != 0 || options.prefix > options.width) {
    throw Error("certified: prefix is " + std::to_string(options.prefix) +
                "; it must be a multiple of 4 and at most width = " + std::to_string(options.width));
  }
  const MatrixXd W = layer.weights().cast<double>();
  const RowMajorMatrix sampled = sample(contexts, options.context_sample);
  choose_coordinates(W, sampled, std::min(options.width, layer.dim()));
  const Coordinates rows = transform_rows(W);
  const std::size_t prefix =
      options.prefix != 0 ? options.prefix : choose_prefix(layer, rows, sampled, options);
  store(layer, rows, sampled, prefix);
}

void PrefixIndex::choose_coordinates(const MatrixXd& W, const RowMajorMatrix& contexts, std::size_t width) {
  const Index d = W.cols();
  MatrixXd second_moment = MatrixXd::Identity(d, d);
  if (contexts.rows() > 0) {
    const Eigen::MatrixXf moment = contexts.transpose() * contexts;
    second_moment = moment.cast<double>();
  }
  second_moment = normalized(second_moment);
  const Eigen::MatrixXd gram = normalized(W.transpose() * W);

  const Eigen::SelfAdjointEigenSolver<MatrixXd> both(second_moment + gram);
  const MatrixXd Q = both.eigenvectors().rightCols(static_cast<Index>(width)).rowwise().reverse();

  const MatrixXd inner_moment = Q.transpose() * second_moment * Q;
  const MatrixXd inner_gram = Q.transpose() * gram * Q;
  const MatrixXd root = power(inner_moment, 0.5);
  const MatrixXd inverse_root = power(inner_moment, -0.5);
  const Eigen::SelfAdjointEigenSolver<MatrixXd> joint(root * inner_gram * root);
  const MatrixXd U = joint.eigenvectors().rowwise().reverse();
  const VectorXd lambda =
      joint.eigenvalues().reverse().cwiseMax(1e-9 * std::max(joint.eigenvalues().maxCoeff(), 1e-30));
  Q_ = Q.transpose().cast<float>();
  R_ = (lambda.array().pow(0.25).matrix().asDiagonal() * U.transpose() * inverse_root).cast<float>();

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
                                       const RowMajorMatrix& contexts,
                                       const CertifiedOptions& options) const {
  const std::size_t full = width() / 4 * 4;
  if (contexts.rows() == 0) return std::min<std::size_t>(32, full);
  // What reading a byte and visiting a row cost, relative to each other: streams are cheap, gathered rows are
  // not.
  constexpr double kScannedByte = 1.0;
  constexpr double kGatheredByte = 3.0;
  constexpr double kVisit = 100.0;

  const MatrixXd H = sample(contexts, 96).cast<double>();
  const MatrixXd transformed = H * (R_.cast<double>() * Q_.cast<double>()).transpose();
  const MatrixXd W = layer.weights().cast<double>();
  const VectorXd b = layer.biases().cast<double>();
  const auto k = static_cast<Index>(std::min(options.expected_k, layer.vocab()));
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
    const double cost = kScannedByte * static_cast<double>(layer.vocab() * (prefix + 8)) +
                        bounded * (kVisit + kGatheredByte * static_cast<double>(width() - prefix)) +
                        0.25 * bounded * kGatheredByte * static_cast<double>(layer.rows().bytes(1));
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

  blocks_.rows = vocab;
  blocks_.width = prefix;
  block_storage_.reset(static_cast<std::byte*>(::operator new (blocks_.bytes(), std::align_val_t{64})));
  std::memset(block_storage_.get(), 0, blocks_.bytes());
  blocks_.data = block_storage_.get();
  second_.assign(vocab * rest, 0);
  second_scales_.assign(vocab, 0.0F);
  second_radii_.assign(vocab, 0.0F);

  std::vector<Terms> first_terms(vocab);
  std::vector<Terms> second_terms(vocab);
  const VectorXd b = layer.biases().cast<double>();
  std::vector<std::int8_t> q(std::max<std::size_t>(prefix, 1));
  for (std::size_t v = 0; v < blocks_.blocks() * kBlockRows; ++v) {
    std::byte* const block = block_storage_.get() + v / kBlockRows * blocks_.block_bytes();
    const std::size_t r = v % kBlockRows;
    auto* const bias = reinterpret_cast<float*>(block) + r;
    if (v >= vocab) {
      *bias = -std::numeric_limits<float>::infinity();
      continue;
    }
    const auto row = w.row(static_cast<Index>(v));
    const std::uint16_t scale = bfloat16_up(largest(row.head(p)) / 127.0);
    quantize(row.head(p), bfloat16_value(scale), q.data());
    *bias = static_cast<float>(b[static_cast<Index>(v)]);
    std::memcpy(block + kBlockRows * sizeof(float) + r * sizeof(scale), &scale, sizeof(scale));
    double rounded = 0.0;
    double stored = 0.0;
    for (std::size_t j = 0; j < prefix; ++j) {
      block[kernels::PrefixBlocks::kHeader + j / 4 * 64 + r * 4 + j % 4] = static_cast<std::byte>(q[j] + 128);
      const double value = bfloat16_value(scale) * q[j];
      rounded += std::pow(row[static_cast<Index>(j)] - value, 2);
      stored += value * value;
    }
    double second_rounded = rounded;
    if (rest > 0) {
      second_scales_[v] = up(largest(row.tail(static_cast<Index>(rest))) / 127.0);
      std::int8_t* const out = second_.data() + v * rest;
      quantize(row.tail(static_cast<Index>(rest)), static_cast<double>(second_scales_[v]), out);
      for (std::size_t j = 0; j < rest; ++j) {
        const double value = static_cast<double>(second_scales_[v]) * out[j];
        second_rounded += std::pow(row[static_cast<Index>(prefix + j)] - value, 2);
        stored += value * value;
      }
    }
    const double outside = rows.outside[static_cast<Index>(v)] + 1e-12 * rows.norms[static_cast<Index>(v)];
    const double scale_of_errors =
        std::max({rows.norms[static_cast<Index>(v)], row.norm(), std::sqrt(stored)});
    first_terms[v] = {row.tail(static_cast<Index>(rest)).norm(), outside, std::sqrt(rounded),
                      scale_of_errors};
    second_terms[v] = {0.0, outside, std::sqrt(second_rounded), scale_of_errors};
  }
  second_rows_.data = second_.data();
  second_rows_.type = WeightType::int8;
  second_rows_.scales = second_scales_.data();
  second_rows_.count = vocab;
  second_rows_.dim = second_rows_.stride = rest;

  // κ² of a term is best at the ratio of what rows and contexts typically have of it.
  const auto mean_of = [](const std::vector<Terms>& terms) {
    Terms mean{};
    for (const Terms& t : terms) {
      for (std::size_t i = 0; i < kTerms; ++i) mean[i] += t[i] / static_cast<double>(terms.size());
    }
    return mean;
  };
  Terms context_first{};
  Terms context_second{};
  const RowMajorMatrix typical = contexts.rows() > 0 ? sample(contexts, 256) : sample(layer.weights(), 256);
  std::vector<float> projected(width());
  std::vector<float> transformed(std::max(width(), prefix));
  for (Index i = 0; i < typical.rows(); ++i) {
    const kernels::Implementation& kernel = kernels::active();
    kernel.scan(rows_of(Q_), 0, width(), typical.row(i).data(), projected.data());
    kernel.scan(rows_of(R_), 0, width(), projected.data(), transformed.data());
    const Terms terms = context_terms(typical.row(i).data(), projected.data(), transformed.data(), 0.0);
    const double all = norm(transformed.data(), width());
    context_first[kLonger] +=
        norm(transformed.data() + std::min(prefix, width()), width() - std::min(prefix, width()));
    context_first[kRounded] += norm(transformed.data(), std::min(prefix, width()));
    context_second[kRounded] += all;
    for (const Term term : {kOutside, kRounding}) {
      context_first[term] += terms[term];
      context_second[term] += terms[term];
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
  first_weights_ = weigh(mean_of(first_terms), context_first);
  second_weights_ = weigh(mean_of(second_terms), context_second);

  const auto radius = [](const Terms& terms, const Terms& weights) {
    double sum = 0.0;
    for (std::size_t i = 0; i < kTerms; ++i) sum += std::pow(terms[i] / weights[i], 2);
    return std::sqrt(sum) * kOutward;
  };
  for (std::size_t v = 0; v < vocab; ++v) {
    const std::uint16_t bits = bfloat16_up(radius(first_terms[v], first_weights_));
    std::byte* const block = block_storage_.get() + v / kBlockRows * blocks_.block_bytes();
    std::memcpy(block + kBlockRows * (sizeof(float) + sizeof(bits)) + v % kBlockRows * sizeof(bits), &bits,
                sizeof(bits));
    second_radii_[v] = up(radius(second_terms[v], second_weights_));
  }
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
                     0.51 * quantum * std::sqrt(static_cast<double>(blocks_.width)) +
                     roundings(width() + 6) * transformed_length;
  return terms;
}

PrefixIndex::Bounds PrefixIndex::bound(const Query& query, Workspace& workspace) const {
  const kernels::Implementation& kernel = kernels::active();
  const std::size_t prefix = blocks_.width;
  const std::size_t filled = std::max(width(), prefix);
  auto* const projected = workspace.screen[0].get<float>(width() + filled);
  float* const transformed = projected + width();
  kernel.scan(rows_of(Q_), 0, width(), query.h, projected);
  kernel.scan(rows_of(R_), 0, width(), projected, transformed);
  std::fill(transformed + width(), transformed + filled, 0.0F);

  Bounds bounds;
  const double length = norm(query.h, dim());
  if (!(length >= kShortest && length <= kLongest)) return bounds;
  bounds.usable = true;
  bounds.transformed = transformed;

  float peak = 0.0F;
  for (std::size_t j = 0; j < prefix; ++j) peak = std::max(peak, std::abs(transformed[j]));
  auto* const n = workspace.screen[1].get<std::int16_t>(prefix);
  const float quantum = peak / 16256.0F;
  const float inverse = quantum > 1e-30F ? 1.0F / quantum : 0.0F;
  for (std::size_t j = 0; j < prefix; ++j) {
    n[j] = static_cast<std::int16_t>(std::lrint(std::clamp(transformed[j] * inverse, -16256.0F, 16256.0F)));
  }
  // A prefix too short to be divided counts as zero, wrong by as much as its peak.
  const double error_quantum =
      inverse > 0.0F ? static_cast<double>(quantum) : 2.0 * static_cast<double>(peak);

  Terms terms = context_terms(query.h, projected, transformed, error_quantum);
  const std::size_t used = std::min(prefix, width());
  const auto radius = [&terms](const Terms& weights) {
    double sum = 0.0;
    for (std::size_t i = 0; i < kTerms; ++i) sum += std::pow(terms[i] * weights[i], 2);
    return up(std::sqrt(sum) * (1.0 + 0x1p-18));  // and the rounding of estimate + radius
  };
  terms[kLonger] = norm(transformed + used, width() - used);
  terms[kRounded] = norm(transformed, used);
  const float first_radius = radius(first_weights_);
  terms[kLonger] = 0.0;
  terms[kRounded] = norm(transformed, width());
  bounds.second_radius = radius(second_weights_);

  const std::size_t room = blocks_.blocks() * kBlockRows;
  bounds.estimates = workspace.screen[2].get<float>(room);
  bounds.radii = workspace.screen[3].get<float>(room);
  kernel.prefix_bounds(blocks_, {n, inverse > 0.0F ? quantum : 0.0F, first_radius}, bounds.estimates,
                       bounds.radii);

  constexpr float nothing = -std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < query.edits.bias_count; ++i) bounds.estimates[query.edits.bias[i].id] = nothing;
  if (query.edits.allowed != nullptr) {
    for (std::size_t v = 0; v < rows(); ++v) {
      if (!query.edits.allows(static_cast<TokenId>(v))) bounds.estimates[v] = nothing;
    }
  }
  return bounds;
}

std::span<const TokenId> PrefixIndex::survivors(const Bounds& bounds, float threshold, Workspace& workspace,
                                                std::size_t& bytes_read) const {
  const kernels::Implementation& kernel = kernels::active();
  auto* const ids = workspace.candidates.get<TokenId>(rows());
  const std::size_t first = kernel.reaching(bounds.estimates, bounds.radii, rows(), threshold, ids);
  if (second_rows_.dim == 0) return {ids, first};

  auto* const longer = workspace.screen[4].get<float>(first);
  kernel.scan_gathered(second_rows_, ids, first, bounds.transformed + blocks_.width, longer);
  bytes_read += second_rows_.bytes(first) + first * sizeof(float);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < first; ++i) {
    const float short_estimate = bounds.estimates[ids[i]];
    const float estimate = short_estimate + longer[i];
    const float rounding =
        kernels::PrefixBlocks::kRounding * (std::abs(short_estimate) + std::abs(longer[i])) +
        kernels::PrefixBlocks::kSmallest;
    const float upper =
        estimate + (second_radii_[static_cast<std::size_t>(ids[i])] * bounds.second_radius + rounding);
    if (!(upper < threshold)) ids[kept++] = ids[i];
  }
  return {ids, kept};
}

std::size_t PrefixIndex::bytes() const {
  return blocks_.bytes() + transform_bytes() + second_.size() +
         (second_scales_.size() + second_radii_.size()) * sizeof(float);
}

}  // namespace topksoftmax
