// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cstddef>
#include <cstdint>

#include "topksoftmax/types.hpp"

namespace topksoftmax::bench {

struct SyntheticHeadOptions {
  std::size_t vocab = 32'000;           ///< V
  std::size_t dim = 1'024;              ///< d
  double alpha = 1.0;                   ///< how fast the contexts' energy falls: smaller is harder
  std::size_t train_contexts = 20'000;  ///< N
  std::size_t test_contexts = 2'000;    ///< M
  std::uint64_t seed = 1;
};

/// A softmax layer without biases and contexts for it, made up.
struct SyntheticHead {
  RowMajorMatrix weight;  ///< [V×d]
  RowMajorMatrix train;   ///< [N×d]
  RowMajorMatrix test;    ///< [M×d]
};

/// A head as hard as those of transformers are, by what is known of their spectra.
///
/// In a random orthonormal basis a context is a mean and a normal vector, both with energy 1/i^α in direction
/// i. Rows are normal vectors with energy 1/i^0.4 in the same directions, shuffled, so that rows and contexts
/// agree in part only; their lengths are log-normal with σ = 0.2, and such that logits have a standard
/// deviation of 2.2. Then each context h leans towards four tokens drawn by Zipf's law (token t with a
/// probability ∝ 1/(t + 1)): it becomes h + Σ a_j·w_j/‖w_j‖², a_1 uniform from 3 to 11, the others 0.75, 0.6
/// and 0.5 of it.
///
/// The same for a seed wherever the standard library is. Cost: (V + N + M)·d² multiply-adds and the result's
/// memory twice.
SyntheticHead make_synthetic_head(const SyntheticHeadOptions& options);

}  // namespace topksoftmax::bench
