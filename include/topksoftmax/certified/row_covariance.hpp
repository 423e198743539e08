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
#include "topksoftmax/rows/stored_array.hpp"
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
  /// Of `rows` rows.
  RowCovariance(const LayerMoments& moments, std::size_t rows);

  /// Nothing where they are not finite floats or doubles. Cost: d² multiply-adds; reads bytes().
  std::optional<ProductMoments> of(std::span<const float> h, Workspace& workspace) const;

  std::size_t bytes() const {
    return covariance_.size() * sizeof(float) + (mean_.size() + bias_covariance_.size()) * sizeof(double);
  }

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
  static constexpr std::string_view kBiasCovariance = "rows.bias_covariance";
  static constexpr std::string_view kNumbers = "rows.numbers";
  static constexpr std::size_t kLeastGain = 4;

  RowCovariance() = default;
  static std::size_t room_for(std::size_t dim) { return ContextTransform::room_for(dim); }
  std::size_t dim() const { return mean_.size(); }

  StoredArray<float> covariance_;        ///< C/unit [d×room]
  StoredArray<double> mean_;             ///< E[w] [d]
  StoredArray<double> bias_covariance_;  ///< c [d]
  double unit_ = 1.0;
  double norm_ = 0.0;           ///< ‖C/unit‖_F
  double mean_square_ = 0.0;    ///< E‖w‖²
  double bias_mean_ = 0.0;      ///< E[b]
  double bias_square_ = 0.0;    ///< E[b²]
  double bias_variance_ = 0.0;  ///< v
};

/// What a query works in.
struct CovarianceScratch {
  ScratchBuffer products;
};

inline RowCovariance::RowCovariance(const LayerMoments& moments, std::size_t rows) {
  const double share = 1.0 / static_cast<double>(rows);
  const double unit_square = moments.unit * moments.unit;
  const Eigen::VectorXd mean = moments.sum * share;
  Eigen::MatrixXd C = moments.gram * share - mean * mean.transpose();
  const double trace = std::max(0.0, C.trace());
  const double scale = trace > 0.0 ? trace : 1.0;
  C /= scale;
  unit_ = scale * unit_square;
  norm_ = C.norm();
  mean_square_ = moments.gram.trace() * share * unit_square * (1.0 + roundings(kRowsOfFloatSums));
  bias_mean_ = moments.biases * share;
  bias_square_ = moments.bias_squares * share;
  bias_variance_ = std::max(0.0, bias_square_ - bias_mean_ * bias_mean_);
  const auto room = static_cast<Eigen::Index>(room_for(moments.dim()));
  RowMajorMatrix values = RowMajorMatrix::Zero(C.rows(), room);
  values.leftCols(C.cols()) = C.cast<float>();
  covariance_ = StoredArray<float>::own(std::move(values));
  const auto keep = [&moments](const Eigen::VectorXd& x) {
    return StoredArray<double>::own(Eigen::VectorXd(x * moments.unit));
  };
  mean_ = keep(mean);
  bias_covariance_ = keep(moments.bias_sum * share - mean * bias_mean_);
}

inline std::optional<ProductMoments> RowCovariance::of(std::span<const float> h, Workspace& workspace) const {
  const std::size_t room = room_for(dim());
  auto* const products = workspace.scratch<CovarianceScratch>().products.get<float>(room);
  kernels::combine_rows(as_rows(covariance_, room, WeightType::float32), h.data(), products);
  ProductMoments moments;
  double square = 0.0;
  double along = 0.0;
  double with_bias = 0.0;
  for (std::size_t j = 0; j < dim(); ++j) {
    const auto x = static_cast<double>(h[j]);
    square += x * x;
    along += x * static_cast<double>(products[j]);
    with_bias += x * bias_covariance_[j];
    moments.mean += x * mean_[j];
  }
  moments.mean += bias_mean_;
  moments.variance = unit_ * along + 2.0 * with_bias + bias_variance_;
  const double length = std::sqrt(square);
  const double longest = mean_square_ * square + bias_square_;
  // Those of the products and of C as floats; of what C's sums were in float32; of all in float64.
  constexpr double kUnderflow = 0x1p-148;
  const double of_floats = roundings(kernels::combine_roundings(dim()) + 1) * norm_ * square +
                           kUnderflow * static_cast<double>(dim()) * length;
  const double of_sums = roundings(kRowsOfFloatSums) * mean_square_ * square;
  constexpr double kOfDoubles = kOutward - 1.0;
  moments.variance_error = unit_ * of_floats + of_sums + kOfDoubles * longest;
  moments.mean_error = kOfDoubles * std::sqrt(longest);
  moments.rounding = roundings(dim() + 3) * (std::sqrt(mean_square_) * length + std::sqrt(bias_square_));
  if (!std::isfinite(moments.mean) || !std::isfinite(moments.variance + moments.variance_error)) {
    return std::nullopt;
  }
  return moments;
}

inline void RowCovariance::save(IndexWriter& out) const {
  out.array(kCovariance, {dim(), room_for(dim())}, covariance_);
  out.array(kMean, {dim()}, mean_);
  out.array(kBiasCovariance, {dim()}, bias_covariance_);
  const std::vector<double> numbers = {unit_, norm_, mean_square_, bias_mean_, bias_square_, bias_variance_};
  out.array(kNumbers, {numbers.size()}, StoredArray<double>::own(numbers));
}

inline std::optional<RowCovariance> RowCovariance::load(const IndexReader& in) {
  if (!in.has_tensor(kCovariance)) return std::nullopt;
  RowCovariance of_rows;
  of_rows.covariance_ = in.floats(kCovariance, {in.dim(), room_for(in.dim())});
  of_rows.mean_ = in.doubles(kMean, {in.dim()});
  of_rows.bias_covariance_ = in.doubles(kBiasCovariance, {in.dim()});
  double* const numbers[] = {&of_rows.unit_,      &of_rows.norm_,        &of_rows.mean_square_,
                             &of_rows.bias_mean_, &of_rows.bias_square_, &of_rows.bias_variance_};
  const StoredArray<double> saved = in.doubles(kNumbers, {std::size(numbers)});
  for (std::size_t i = 0; i < saved.size(); ++i) {
    *numbers[i] = saved[i];
    if (numbers[i] != &of_rows.bias_mean_ && saved[i] < 0.0) throw in.damaged(kNumbers, "has one below 0");
  }
  return of_rows;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
