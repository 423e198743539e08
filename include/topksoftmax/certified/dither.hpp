// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/prefix_blocks.hpp"
#include "topksoftmax/numeric/split_mix.hpp"
#include "topksoftmax/storage/stored_array.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// One random vector t for all rows, uniform in ± ½ in each coordinate that rows have as codes: a row's code
/// of x_j is that of x_j + step·t_j, and stands for step·t_j less (Coder). For a row and a context that do
/// not depend on t, the errors ε_j of a row's coordinates are then independent and uniform in ± step/2, so
/// that Σ ε_j·h_j is sub-Gaussian with the variance step²·‖h‖²/12. Only the k rows of the exact answer, which
/// do not depend on t either, must not be estimated too low, and by the union over these
///   P(some Σ ε_j·h_j < −step·‖h‖·√(ln(k/δ)/6)) ≤ k·exp(−ln(k/δ)) = δ.
/// Of coordinates with several steps, step·‖h‖ is √Σ(step_i·‖h_i‖)².
class Dither {
 public:
  /// None: t = 0, and nothing is left to chance.
  explicit Dither(std::size_t width = 0) : t_(StoredArray<float>::own(std::vector<float>(width, 0.0F))) {}

  /// A random one of `width` coordinates, δ = `failure_probability` > 0.
  Dither(std::size_t width, double failure_probability, std::uint64_t seed)
      : failure_probability_(failure_probability) {
    std::vector<float> t(width);
    for (std::size_t j = 0; j < width; ++j) {
      // An odd multiple of 2⁻²⁴, so that both signs are as likely and no float is rounded.
      const auto bits = static_cast<std::int32_t>(split_mix(seed, j) >> 41);  // 23 of them
      t[j] = static_cast<float>(2 * bits + 1 - (1 << 23)) * 0x1p-24F;
    }
    t_ = StoredArray<float>::own(std::move(t));
  }

  /// Reads what save() has written.
  Dither(const IndexReader& in, std::size_t width, double failure_probability)
      : t_(in.floats(kName, {width})), failure_probability_(failure_probability) {
    for (const float t : t_) {
      if (!(std::abs(t) <= 0.5F)) throw in.damaged(kName, "has a value that is not within 0.5");
    }
  }

  void save(IndexWriter& out) const { out.array(kName, {t_.size()}, t_); }

  bool is_random() const { return failure_probability_ > 0.0; }
  const StoredArray<float>& t() const { return t_; }

  /// √(ln(k/δ)/6), rounded up by more than t's being multiples of 2⁻²³ adds. 1 where nothing is random, and
  /// errors are not told by steps.
  double reach(std::size_t k) const { return is_random() ? reach_of(k, failure_probability_) : 1.0; }
  static double reach_of(std::size_t k, double failure_probability) {
    return std::sqrt(std::log(static_cast<double>(k) / failure_probability) / 6.0) * (1.0 + 0x1p-17);
  }

 private:
  static constexpr std::string_view kName = "dither";

  StoredArray<float> t_;
  double failure_probability_ = 0.0;
};

/// Σ 2·t_j·n_j as CodeContext counts it, for the n [width] and shifts of a context, rounded: what its offset
/// is.
inline std::int32_t dither_offset(const float* t, const kernels::CodeContext& context, std::size_t width) {
  constexpr std::size_t kSegment = kernels::CodeContext::kSegment;
  double sum = 0.0;
  for (std::size_t first = 0; first < width; first += kSegment) {
    sum = std::ldexp(sum, context.shifts[first / kSegment]);
    for (std::size_t j = first; j < first + kSegment; ++j) {
      sum += 2.0 * static_cast<double>(t[j]) * static_cast<double>(context.n[j]);
    }
  }
  return static_cast<std::int32_t>(std::lround(sum));
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
