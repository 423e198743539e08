// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "topksoftmax/certified/transform.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/index/tensor_view.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/kernels/rows.hpp"
#include "topksoftmax/numeric/half.hpp"
#include "topksoftmax/numeric/round_outwards.hpp"
#include "topksoftmax/rows/context_rounding.hpp"
#include "topksoftmax/rows/prefix_store.hpp"
#include "topksoftmax/shared_scan.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// What the square of a float may lose where it is smaller than floats can be.
inline constexpr double kLostSquare = 0x1p-148;

TOPKSOFTMAX_INLINE LengthBounds length_of(const float* x, std::size_t count) {
  const auto square = static_cast<double>(kernels::squared_length(x, count));
  const double lost = kLostSquare * static_cast<double>(count);
  const double share = roundings(count + 3);
  return {std::sqrt(std::max(square * (1.0 - share) - lost, 0.0)), std::sqrt(square * (1.0 + share) + lost)};
}

inline constexpr const char* kWholeTransform = "RQ";
inline constexpr const char* kIdentityTransform = "identity";

TOPKSOFTMAX_INLINE ContextTransform::ContextTransform(const IndexReader& in, std::size_t width,
                                                      const double* norms)
    : dim_(in.dim()), width_(width), unorthogonality_(norms[0]), transform_norm_(norms[1]) {
  unsigned is_identity = 0;
  if (in.has_option(kIdentityTransform)) in.option(kIdentityTransform, is_identity);
  if (is_identity != 0) {
    *this = identity(in.dim());
    return;
  }
  if (in.has_tensor(kWholeTransform) || !in.has_tensor("Q")) {
    width_ = dim_;
    if (dim_ > kernels::kMaxWidth) throw in.damaged(kWholeTransform, "has more rows than there can be");
    whole_ = PrefixStore(in, kWholeTransform, dim_, (dim_ + 3) / 4 * 4);
    return;
  }
  Q_ = in.array<Float16>("Q", {in.dim(), room()}, DataType::float16);
  if (in.has_tensor("R") || width != dim_) R_ = in.floats("R", {width, room()});
  if (std::any_of(Q_.begin(), Q_.end(), [](Float16 x) { return !std::isfinite(static_cast<float>(x)); })) {
    throw in.damaged("Q", "has a value that is not finite");
  }
}

TOPKSOFTMAX_INLINE void ContextTransform::save(IndexWriter& out) const {
  if (is_identity()) return out.option(kIdentityTransform, 1);
  if (in_bytes()) return whole_.save(out, kWholeTransform);
  out.array("Q", {dim(), room()}, Q_, DataType::float16);
  if (!is_whole()) out.array("R", {width(), room()}, R_);
}

/// Applies a whole transform in int8.
TOPKSOFTMAX_INLINE void ContextTransform::apply_bytes(std::span<Application> batch,
                                                      const Workspace& workspace) const {
  const kernels::PrefixBlocks& rows = whole_.blocks();
  kernels::PrefixProducts products[kernels::kPrefixBatch];
  for (std::size_t q = 0; q < batch.size(); ++q) {
    Application& one = batch[q];
    auto* const n = reinterpret_cast<std::int16_t*>(one.projected);
    const float step = round_to_shorts(one.h, dim(), n);
    std::fill(n + dim(), n + rows.width, std::int16_t{0});
    one.lengths.lost = rounded_to_shorts(step) * std::sqrt(static_cast<double>(dim()));
    products[q] = {{.n = n, .scale = step}, one.transformed, one.projected + room()};
  }
  prefix_bounds_batch(workspace, rows, {products, batch.size()});
  for (const Application& one : batch) {
    std::fill(one.transformed + width(), one.transformed + room(), 0.0F);
  }
}

TOPKSOFTMAX_INLINE void ContextTransform::apply(std::span<Application> batch,
                                                const Workspace& workspace) const {
  if (in_bytes()) apply_bytes(batch, workspace);
  for (Application& one : batch) {
    one.lengths.context = length_of(one.h, dim());
    if (is_identity()) {
      std::fill(std::copy_n(one.h, dim(), one.transformed), one.transformed + room(), 0.0F);
    } else if (!in_bytes() && is_whole()) {  // of an earlier version
      kernels::combine_rows(as_rows(Q_, room(), WeightType::float16), one.h, one.transformed);
    } else if (!in_bytes()) {
      kernels::combine_rows(as_rows(Q_, room(), WeightType::float16), one.h, one.projected);
      kernels::combine_rows(as_rows(R_, room(), WeightType::float32), one.projected, one.transformed);
      one.lengths.projected = length_of(one.projected, width());
    }
    one.lengths.transformed = length_of(one.transformed, width());
  }
}

TOPKSOFTMAX_INLINE double ContextTransform::projection_error(const Lengths& lengths) const {
  // `width` dot products of d terms with rows of length about 1.
  const double root_width = std::sqrt(static_cast<double>(width()));
  return roundings(kernels::combine_roundings(dim())) * root_width * (1.0 + unorthogonality_) *
         lengths.context.high;
}

TOPKSOFTMAX_INLINE double ContextTransform::outside(const Lengths& lengths) const {
  if (is_identity()) return 0.0;
  if (is_whole()) return lengths.context.high + lengths.lost;
  const double inside = std::max(lengths.projected.low - projection_error(lengths), 0.0);
  const double square =
      lengths.context.high * lengths.context.high - inside * inside / (1.0 + unorthogonality_);
  return std::sqrt(std::max(square, 0.0)) * kOutward;
}

TOPKSOFTMAX_INLINE double ContextTransform::error(const Lengths& lengths) const {
  const double product_error = roundings(dim() + 3) * lengths.context.high;
  if (is_identity()) return product_error;
  // Its products are exact, and a coordinate is rounded three times on its way to a float.
  double transform_error = lengths.lost + roundings(4) * lengths.transformed.high;
  if (!in_bytes()) {
    transform_error =
        is_whole()
            ? transform_norm_ * roundings(kernels::combine_roundings(dim())) * lengths.context.high
            : transform_norm_ * (projection_error(lengths) +
                                 roundings(kernels::combine_roundings(width())) * lengths.projected.high);
  }
  return product_error + transform_error;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
