// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "topksoftmax/certified/transform.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/numeric/round_outwards.hpp"
#include "topksoftmax/rows/layer_moments.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What the products w·h + b of all rows have of mean and of variance.
struct ProductMoments {
  double mean = 0.0;
  double variance = 0.0;
  double mean_error = 0.0;      ///< how far the mean in real numbers may be from it
  double variance_error = 0.0;  ///< likewise
  double rounding = 0.0;  ///< what float32 products differ by from real ones: the root of its mean square
};

/// The covariance of the rows of a layer, by which a context has those of all its products without any row:
/// the variance is h·Ch + 2·c·h + v, with C = Cov(w) [d×d], c = Cov(w, b) [d] and v = Var(b).
class RowCovariance {
 public:
  explicit RowCovariance(const LayerMoments& moments);

  /// Nothing where they are not finite floats or doubles. Cost: d² multiply-adds; reads bytes().
  std::optional<ProductMoments> of(std::span<const float> h, Workspace& workspace) const;

  std::size_t bytes() const { return covariance_.size() * sizeof(float) + 4 * mean_.size() * sizeof(double); }

  /// Whether a query gains by it: of rows [d] of so many bytes in all it reads far less.
  static bool is_worth_keeping(std::size_t dim, std::size_t layer_bytes) {
    return dim * room_for(dim) * sizeof(float) <= layer_bytes / kLeastGain;
  }

  /// Puts what load() reads into `out`.
  void save(IndexWriter& out) const;
  /// What save() has written; nothing where there is none.
  static std::optional<RowCovariance> load(const IndexReader& in);

 private:
  static constexpr std::string_view kCovariance = "rows.covariance";
  static constexpr std::string_view kMean = "rows.mean";
  static constexpr std::string_view kSizes = "rows.sizes";
  static constexpr std::string_view kSpreads = "rows.spreads";
  static constexpr std::string_view kBiasCovariance = "rows.bias_covariance";
  static constexpr std::string_view kNumbers = "rows.numbers";
  static constexpr std::size_t kLeastGain = 4;
  /// Float32 has rounded what is left of two weights without their means, sums of their products, and C.
  static constexpr std::size_t kInFloats = 2 + kRowsOfFloatSums + 1;
  /// What an entry loses besides where weights of at most 2, or their products, are too small for a float.
  static constexpr double kUnderflow = 0x1p-146;
  /// C is divided by its trace, but by no less: what C itself has lost to small numbers then is little of it.
  static constexpr double kLeastTrace = 0x1p-60;

  RowCovariance() = default;
  static std::size_t room_for(std::size_t dim) { return ContextTransform::room_for(dim); }
  std::size_t dim() const { return mean_.size(); }

  StoredArray<float> covariance_;        ///< C/unit [d×room]
  StoredArray<double> mean_;             ///< E[w] [d]
  StoredArray<double> sizes_;            ///< √E[w_j²] [d], at the least
  StoredArray<double> spreads_;          ///< √C_jj [d], at the least
  StoredArray<double> bias_covariance_;  ///< c [d]
  double unit_ = 1.0;
  double bias_mean_ = 0.0;      ///< E[b]
  double bias_square_ = 0.0;    ///< E[b²]
  double bias_variance_ = 0.0;  ///< v
};

/// What a query works in.
struct CovarianceScratch {
  ScratchBuffer products;
};

inline RowCovariance::RowCovariance(const LayerMoments& moments)
    : bias_mean_(moments.bias_mean),
      bias_square_(moments.bias_square),
      bias_variance_(std::max(0.0, bias_square_ - bias_mean_ * bias_mean_)) {
  const Eigen::MatrixXd& C = moments.covariance;
  const double trace = C.trace();
  const double scale = std::max(trace, kLeastTrace);
  unit_ = scale * moments.unit * moments.unit;
  const std::size_t room = room_for(static_cast<std::size_t>(moments.mean.size()));
  RowMajorMatrix values = RowMajorMatrix::Zero(C.rows(), static_cast<Eigen::Index>(room));
  values.leftCols(C.cols()) = (C / scale).cast<float>();
  covariance_ = StoredArray<float>::own(std::move(values));
  const auto keep = [&moments](const Eigen::VectorXd& x) {
    return StoredArray<double>::own(Eigen::VectorXd(x * moments.unit));
  };
  const Eigen::VectorXd variances =
      (C.diagonal().cwiseMax(0.0).array() + kUnderflow) * (1.0 + roundings(kInFloats));
  mean_ = keep(moments.mean);
  spreads_ = keep(variances.cwiseSqrt());
  sizes_ = keep((variances + moments.mean.cwiseAbs2()).cwiseSqrt());
  bias_covariance_ = keep(moments.bias_covariance);
}

inline std::optional<ProductMoments> RowCovariance::of(std::span<const float> h, Workspace& workspace) const {
  const std::size_t room = room_for(dim());
  auto* const products = workspace.scratch<CovarianceScratch>().products.get<float>(room);
  kernels::combine_rows(as_rows(covariance_, room, WeightType::float32), h.data(), products);
  ProductMoments moments;
  double size = 0.0;  // Σ|h_j|·√E[w_j²], at least √E(Σ|w_j·h_j|)²
  double spread = 0.0;  // Σ|h_j|·√C_jj, whose square is at least Σ|h_i·h_j|·E|(w_i − E[w_i])·(w_j − E[w_j])|
  double length = 0.0;  // Σ|h_j|
  double along = 0.0;
  double with_bias = 0.0;
  for (std::size_t j = 0; j < dim(); ++j) {
    const auto x = static_cast<double>(h[j]);
    size += std::abs(x) * sizes_[j];
    spread += std::abs(x) * spreads_[j];
    length += std::abs(x);
    along += x * static_cast<double>(products[j]);
    with_bias += x * bias_covariance_[j];
    moments.mean += x * mean_[j];
  }
  moments.mean += bias_mean_;
  moments.variance = unit_ * along + 2.0 * with_bias + bias_variance_;
  constexpr double kOfDoubles = kOutward - 1.0;
  const double largest = size * size + bias_square_;
  moments.variance_error = roundings(kInFloats + kernels::combine_roundings(dim())) * spread * spread +
                           kOfDoubles * largest +
                           kUnderflow * unit_ * length * (length + static_cast<double>(dim())) +
                           kUnderflow / kLeastTrace * unit_ * length * length;
  moments.mean_error = kOfDoubles * std::sqrt(largest);
  moments.rounding = roundings(dim() + 3) * (size + std::sqrt(bias_square_));
  if (!std::isfinite(moments.mean) || !std::isfinite(moments.variance + moments.variance_error)) {
    return std::nullopt;
  }
  return moments;
}

inline void RowCovariance::save(IndexWriter& out) const {
  out.array(kCovariance, {dim(), room_for(dim())}, covariance_);
  out.array(kMean, {dim()}, mean_);
  out.array(kSizes, {dim()}, sizes_);
  out.array(kSpreads, {dim()}, spreads_);
  out.array(kBiasCovariance, {dim()}, bias_covariance_);
  const std::vector<double> numbers = {unit_, bias_mean_, bias_square_, bias_variance_};
  out.array(kNumbers, {numbers.size()}, StoredArray<double>::own(numbers));
}

inline std::optional<RowCovariance> RowCovariance::load(const IndexReader& in) {
  if (!in.has_tensor(kCovariance) && !in.has_tensor(kMean)) return std::nullopt;
  RowCovariance of_rows;
  of_rows.covariance_ = in.floats(kCovariance, {in.dim(), room_for(in.dim())});
  of_rows.mean_ = in.doubles(kMean, {in.dim()});
  of_rows.sizes_ = in.doubles(kSizes, {in.dim()});
  of_rows.spreads_ = in.doubles(kSpreads, {in.dim()});
  for (const auto& [name, sizes] :
       {std::pair(kSizes, of_rows.sizes_), std::pair(kSpreads, of_rows.spreads_)}) {
    if (std::any_of(sizes.begin(), sizes.end(), [](double size) { return size < 0.0; })) {
      throw in.damaged(name, "has a value below 0");
    }
  }
  of_rows.bias_covariance_ = in.doubles(kBiasCovariance, {in.dim()});
  double* const numbers[] = {&of_rows.unit_, &of_rows.bias_mean_, &of_rows.bias_square_,
                             &of_rows.bias_variance_};
  const StoredArray<double> saved = in.doubles(kNumbers, {std::size(numbers)});
  for (std::size_t i = 0; i < saved.size(); ++i) {
    *numbers[i] = saved[i];
    if (numbers[i] != &of_rows.bias_mean_ && saved[i] < 0.0)
      throw in.damaged(kNumbers, "has a value below 0");
  }
  return of_rows;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
