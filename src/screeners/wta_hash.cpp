// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/screeners/wta_hash.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include "topksoftmax/error.hpp"
#include "topksoftmax/kernels/implementation.hpp"

namespace topksoftmax {
namespace {

/// Bands that a token's 16-bit counter of hits can hold.
constexpr std::size_t kMostBands = std::numeric_limits<std::uint16_t>::max();

/// Whether K^units < 2³¹, which is u·log2 K < 31 without its rounding.
bool code_fits(std::size_t K, std::size_t units) {
  constexpr std::size_t limit = std::size_t{1} << 31;
  std::size_t codes = 1;
  for (std::size_t j = 0; j < units; ++j) {
    if (K >= (limit + codes - 1) / codes) return false;
    codes *= K;
  }
  return true;
}

void check(const WtaHashOptions& options) {
  const auto refuse = [](const char* option, std::size_t value, const std::string& limit) {
    throw Error("WTA hash: " + std::string(option) + " is " + std::to_string(value) + "; it must be " +
                limit);
  };
  if (options.K < 2) refuse("K", options.K, "at least 2");
  if (options.units_per_band < 1) refuse("units_per_band", options.units_per_band, "at least 1");
  if (!code_fits(options.K, options.units_per_band)) {
    throw Error("WTA hash: units_per_band = " + std::to_string(options.units_per_band) +
                " hashes of K = " + std::to_string(options.K) +
                " make a band's code too long; units_per_band * log2(K) must be below 31");
  }
  if (options.bands < 1 || options.bands > kMostBands) {
    refuse("bands", options.bands, "between 1 and " + std::to_string(kMostBands));
  }
}

}  // namespace

WtaHash::WtaHash(std::size_t dim, const WtaHashOptions& options)
    : dim_(dim), K_(std::min(options.K, dim)), units_(options.units_per_band), bands_(options.bands) {
  check(options);
  positions_.assign((bands_ + kGroup - 1) / kGroup * units_ * K_ * kGroup, 0);
  std::mt19937_64 engine(options.seed);
  std::vector<std::int32_t> elements(dim);
  std::iota(elements.begin(), elements.end(), 0);
  for (std::size_t p = 0; p < bands_ * units_; ++p) {
    for (std::size_t k = 0; k < K_; ++k) {  // the first steps of Fisher and Yates; any start will do
      std::swap(elements[k], elements[k + engine() % (dim - k)]);
      positions_[position_index(p, k)] = elements[k];
    }
  }
}

std::size_t WtaHash::position_index(std::size_t p, std::size_t k) const {
  const std::size_t band = p / units_;
  return ((band / kGroup * units_ + p % units_) * K_ + k) * kGroup + band % kGroup;
}

kernels::WtaBands WtaHash::kernel_bands() const {
  return {positions_.data(), (bands_ + kGroup - 1) / kGroup, units_, K_};
}

std::vector<std::int32_t> WtaHash::permutation(std::size_t p) const {
  std::vector<std::int32_t> first;
  for (std::size_t k = 0; k < K_; ++k) first.push_back(positions_[position_index(p, k)]);
  return first;
}

void WtaHash::band_codes(const float* x, std::uint32_t* codes) const {
  kernels::active().wta_codes(kernel_bands(), x, codes);
}

void WtaHash::band_codes_batch(const float* vectors, std::size_t stride, std::size_t count, float* columns,
                               std::uint32_t* codes) const {
  for (std::size_t i = 0; i < kGroup; ++i) {
    const float* const x = vectors + std::min(i, count - 1) * stride;
    for (std::size_t j = 0; j < dim_; ++j) columns[j * kGroup + i] = x[j];
  }
  kernels::active().wta_codes_batch(kernel_bands(), columns, codes);
}

}  // namespace topksoftmax
