// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/top_k.hpp"

#include <cmath>

#include "topksoftmax/kernels/log_sum_exp.hpp"

namespace topksoftmax {

NucleusCheck check_nucleus(const TopK& answer, double p) {
  const bool proven = answer.normalizer == Normalizer::exact || answer.normalizer == Normalizer::interval;
  if (!answer.certified || !proven) return NucleusCheck::unknown;
  // Of an exact log Z; an interval's holds it already.
  constexpr double rounding = kernels::kSumExpError;
  double least = 0.0;
  double most = 0.0;
  for (const float logit : answer.logits) {
    least += std::exp(static_cast<double>(logit) - answer.log_z_high);
    most += std::exp(static_cast<double>(logit) - answer.log_z_low);
  }
  if (least * (1.0 - rounding) >= p) return NucleusCheck::inside;
  return most * (1.0 + rounding) < p ? NucleusCheck::outside : NucleusCheck::unknown;
}

}  // namespace topksoftmax
