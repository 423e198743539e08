// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "topksoftmax/check_options.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/wta_bands.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/wta/wta_hash.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Whether K^units < 2³¹, which is u·log2 K < 31 without its rounding.
inline bool code_fits(std::size_t K, std::size_t units) {
  constexpr std::size_t limit = std::size_t{1} << 31;
  std::size_t codes = 1;
  for (std::size_t j = 0; j < units; ++j) {
    if (K >= (limit + codes - 1) / codes) return false;
    codes *= K;
  }
  return true;
}

inline void check_wta_options(const WtaHashOptions& options) {
  check_options("WTA hash", options);
  if (!code_fits(options.K, options.units_per_band)) {
    throw Error("WTA hash: units_per_band = " + std::to_string(options.units_per_band) +
                " hashes of K = " + std::to_string(options.K) +
                " make a band's code too long; units_per_band * log2(K) must be below 31");
  }
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

TOPKSOFTMAX_INLINE WtaHash::WtaHash(std::size_t dim, const WtaHashOptions& options)
    : dim_(dim), options_(options), compared_(std::min(options.K, dim)) {
  detail::check_wta_options(options);
  std::vector<std::int32_t> positions(position_count(), 0);
  std::mt19937_64 engine(options.seed);
  std::vector<std::int32_t> elements(dim);
  std::iota(elements.begin(), elements.end(), 0);
  for (std::size_t p = 0; p < options.bands * options.units_per_band; ++p) {
    for (std::size_t k = 0; k < compared_; ++k) {  // the first steps of Fisher and Yates; any start will do
      std::swap(elements[k], elements[k + engine() % (dim - k)]);
      positions[position_index(p, k)] = elements[k];
    }
  }
  positions_ = StoredArray<std::int32_t>::own(std::move(positions));
}

TOPKSOFTMAX_INLINE WtaHash::WtaHash(std::size_t dim, const WtaHashOptions& options,
                                    StoredArray<std::int32_t> positions)
    : dim_(dim), options_(options), compared_(std::min(options.K, dim)), positions_(std::move(positions)) {
  detail::check_wta_options(options);
  if (positions_.size() != position_count()) {
    throw Error("WTA hash: there are " + std::to_string(positions_.size()) + " positions; they must be " +
                std::to_string(position_count()));
  }
  for (const std::int32_t position : positions_) {
    if (position < 0 || static_cast<std::size_t>(position) >= dim) {
      throw Error("WTA hash: a position is " + std::to_string(position) +
                  "; it must be below d = " + std::to_string(dim));
    }
  }
}

TOPKSOFTMAX_INLINE std::size_t WtaHash::position_count() const {
  return (bands() + kGroup - 1) / kGroup * options_.units_per_band * compared_ * kGroup;
}

TOPKSOFTMAX_INLINE std::size_t WtaHash::position_index(std::size_t p, std::size_t k) const {
  const std::size_t units = options_.units_per_band;
  const std::size_t band = p / units;
  return ((band / kGroup * units + p % units) * compared_ + k) * kGroup + band % kGroup;
}

TOPKSOFTMAX_INLINE kernels::WtaBands WtaHash::kernel_bands() const {
  return {positions_.data(), (bands() + kGroup - 1) / kGroup, options_.units_per_band, compared_};
}

TOPKSOFTMAX_INLINE std::vector<std::int32_t> WtaHash::permutation(std::size_t p) const {
  std::vector<std::int32_t> first;
  for (std::size_t k = 0; k < compared_; ++k) first.push_back(positions_[position_index(p, k)]);
  return first;
}

TOPKSOFTMAX_INLINE void WtaHash::band_codes(const float* x, std::uint32_t* codes) const {
  kernels::wta_codes(kernel_bands(), x, codes);
}

TOPKSOFTMAX_INLINE void WtaHash::band_codes_batch(const float* vectors, std::size_t stride, std::size_t count,
                                                  float* columns, std::uint32_t* codes) const {
  for (std::size_t i = 0; i < kGroup; ++i) {
    const float* const x = vectors + std::min(i, count - 1) * stride;
    for (std::size_t j = 0; j < dim_; ++j) columns[j * kGroup + i] = x[j];
  }
  kernels::wta_codes_batch(kernel_bands(), columns, codes);
}

}  // namespace TOPKSOFTMAX_NAMESPACE
