// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/wta_bands.hpp"
#include "topksoftmax/option_limits.hpp"
#include "topksoftmax/storage/stored_array.hpp"

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

  /// Calls visit(name, value, help[, limits]) for every option, in the order of their declaration.
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

  /// d, the length of a vector.
  std::size_t dim() const { return dim_; }
  /// Bands of a hash.
  std::size_t bands() const { return options_.bands; }
  /// What the hash was made with.
  const WtaHashOptions& options() const { return options_; }
  /// The permutations [⌈W/kGroup⌉ × u × K × kGroup]: the k-th element of the j-th of band w is at
  /// ((w / kGroup · u + j) · K + k) · kGroup + w % kGroup.
  const StoredArray<std::int32_t>& positions() const { return positions_; }
  /// K, or dim if it is less.
  std::size_t compared() const { return compared_; }
  /// Bands as the kernel counts them: whole groups.
  std::size_t padded_bands() const { return kernel_bands().groups * kGroup; }
  /// Bytes of the permutations.
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

#if defined(TOPKSOFTMAX_HEADER_ONLY)
#include "topksoftmax/wta/wta_hash-inl.hpp"
#endif
