// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
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
#include "topksoftmax/option_limits.hpp"
#include "topksoftmax/rows/stored_array.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Bands that a token's 16-bit counter of hits can hold.
inline constexpr std::size_t kMostBands = std::numeric_limits<std::uint16_t>::max();

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

/// The parameters {K, u, W} of a banded winner-take-all hash. The paper's choices are {8, 3, 500} and
/// {16, 3, 500}. The higher K and u, the fewer rows have a context's code, and the more alike those are.
struct WtaHashOptions {
  /// Values that a hash compares: at least 2. Vectors of fewer values compare all they have.
  std::size_t K = 8;
  /// u, hashes a band: u·log2 K < 31, so that a band's code is an int32.
  std::size_t units_per_band = 3;
  /// W, at most 65535.
  std::size_t bands = 500;
  /// Of the permutations.
  std::uint64_t seed = 1;

  template <class Self, class Visit>
  static void visit(Self& options, Visit&& visit) {
    visit("K", options.K, "values that a hash compares", at_least(2));
    visit("units_per_band", options.units_per_band, "u, hashes a band", at_least(1));
    visit("bands", options.bands, "W", between(1, detail::kMostBands));
    visit("seed", options.seed, "of the permutations");
  }
};

/// The winner-take-all hash (Yagnik et al. 2011) in bands, as "Fast Locality Sensitive Hashing for Beam
/// Search on GPU" (§4.2.1, equations 4–8) defines it:
///
///   I_p = argmax over k < K of Permute_p(x)[k],     B_w = [I_wu … I_wu+u−1]
///
/// It sees only the order of x's values: any strictly increasing function of them all, such as a positive
/// factor, leaves the codes as they are.
class TOPKSOFTMAX_EXPORT WtaHash {
 public:
  /// Codes are written for W rounded up to a whole number of these.
  static constexpr std::size_t kGroup = kernels::WtaBands::kGroup;

  /// For vectors of `dim` ≥ 1 values. Throws Error for unusable options.
  WtaHash(std::size_t dim, const WtaHashOptions& options);

  /// The hash that had these positions(). Throws Error also for any other number of them, or any beyond dim.
  WtaHash(std::size_t dim, const WtaHashOptions& options, StoredArray<std::int32_t> positions);

  std::size_t dim() const { return dim_; }
  std::size_t bands() const { return options_.bands; }
  const WtaHashOptions& options() const { return options_; }
  /// The permutations [⌈W/kGroup⌉ × u × K × kGroup]: the k-th element of the j-th of band w is at
  /// ((w / kGroup · u + j) · K + k) · kGroup + w % kGroup.
  const StoredArray<std::int32_t>& positions() const { return positions_; }
  /// K, or dim if it is less.
  std::size_t compared() const { return compared_; }
  std::size_t padded_bands() const { return kernel_bands().groups * kGroup; }
  std::size_t bytes() const { return positions_.size() * sizeof(positions_[0]); }

  /// codes[w] = B_w(x) as a number to the base K (I_wu its highest digit), x [dim], codes [padded_bands()].
  /// Looks at W·u·K values.
  void band_codes(const float* x, std::uint32_t* codes) const;

  /// codes[w·kGroup + i] = B_w of the i-th of `count` ≤ kGroup vectors, `stride` floats apart; those of
  /// i ≥ count mean nothing. codes [padded_bands()·kGroup]; columns [dim·kGroup] is scratch.
  void band_codes_batch(const float* vectors, std::size_t stride, std::size_t count, float* columns,
                        std::uint32_t* codes) const;

  /// What the kernels take.
  kernels::WtaBands kernel_bands() const;

  /// The first K elements of permutation p < W·u, fewer where dim < K.
  std::vector<std::int32_t> permutation(std::size_t p) const;

 private:
  std::size_t position_count() const;
  std::size_t position_index(std::size_t p, std::size_t k) const;

  std::size_t dim_;
  WtaHashOptions options_;
  std::size_t compared_;
  StoredArray<std::int32_t> positions_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE

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

inline WtaHash::WtaHash(std::size_t dim, const WtaHashOptions& options)
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

inline WtaHash::WtaHash(std::size_t dim, const WtaHashOptions& options, StoredArray<std::int32_t> positions)
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

inline std::size_t WtaHash::position_count() const {
  return (bands() + kGroup - 1) / kGroup * options_.units_per_band * compared_ * kGroup;
}

inline std::size_t WtaHash::position_index(std::size_t p, std::size_t k) const {
  const std::size_t units = options_.units_per_band;
  const std::size_t band = p / units;
  return ((band / kGroup * units + p % units) * compared_ + k) * kGroup + band % kGroup;
}

inline kernels::WtaBands WtaHash::kernel_bands() const {
  return {positions_.data(), (bands() + kGroup - 1) / kGroup, options_.units_per_band, compared_};
}

inline std::vector<std::int32_t> WtaHash::permutation(std::size_t p) const {
  std::vector<std::int32_t> first;
  for (std::size_t k = 0; k < compared_; ++k) first.push_back(positions_[position_index(p, k)]);
  return first;
}

inline void WtaHash::band_codes(const float* x, std::uint32_t* codes) const {
  kernels::wta_codes(kernel_bands(), x, codes);
}

inline void WtaHash::band_codes_batch(const float* vectors, std::size_t stride, std::size_t count,
                                      float* columns, std::uint32_t* codes) const {
  for (std::size_t i = 0; i < kGroup; ++i) {
    const float* const x = vectors + std::min(i, count - 1) * stride;
    for (std::size_t j = 0; j < dim_; ++j) columns[j * kGroup + i] = x[j];
  }
  kernels::wta_codes_batch(kernel_bands(), columns, codes);
}

}  // namespace TOPKSOFTMAX_NAMESPACE
