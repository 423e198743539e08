// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace topksoftmax::bench {

/// What of Eigen the peers use, compiled for this very machine. It lives in a shared library of its own, with
/// nothing but these functions visible: the same templates exist in the program, compiled for any machine,
/// and the linker would keep only one of each.

/// logits[q][i] = W[i]·H[q] + b[i] for W [V×d], H [batch×d], b [V] (null: none), logits [batch×V].
[[gnu::visibility("default")]] void eigen_product(const float* W, std::size_t vocab, std::size_t dim,
                                                  std::size_t stride, const float* b, const float* H,
                                                  std::size_t batch, std::size_t context_stride,
                                                  float* logits);

/// logits[i] = scale·logits[i] + b[i] for `count` of them.
[[gnu::visibility("default")]] void eigen_scale_and_add(float scale, const float* b, std::size_t count,
                                                        float* logits);

/// sums[i] = a[i] + b[i] for `count` of them.
[[gnu::visibility("default")]] void eigen_add(const float* a, const float* b, std::size_t count, float* sums);

}  // namespace topksoftmax::bench
