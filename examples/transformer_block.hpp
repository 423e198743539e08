// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <cmath>
#include <cstddef>
#include <string>
#include <unsupported/Eigen/SpecialFunctions>

#include "causal_attention.hpp"
#include "layer_norm.hpp"
#include "linear.hpp"
#include "sized_vector.hpp"
#include "topksoftmax/io/safetensors.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax::examples {

/// A pre-norm block: x += attention(norm1(x)), then x += down · gelu(up · norm2(x) + up.bias) + down.bias.
class TransformerBlock {
 public:
  /// Reads PREFIX.norm1.* and PREFIX.norm2.* (see LayerNorm), PREFIX.attention.* (see CausalAttention),
  /// PREFIX.mlp.up.weight [4d×d], up.bias [4d], down.weight [d×4d] and down.bias [d].
  TransformerBlock(const SafetensorsFile& file, const std::string& prefix, std::size_t dim)
      : norm1_(file, prefix + ".norm1", dim),
        attention_(file, prefix + ".attention", dim),
        norm2_(file, prefix + ".norm2", dim),
        up_(file, prefix + ".mlp.up.weight", sized_vector(file, prefix + ".mlp.up.bias", 4 * dim),
            {4 * dim, dim}),
        down_(file, prefix + ".mlp.down.weight", sized_vector(file, prefix + ".mlp.down.bias", dim),
              {dim, 4 * dim}) {}

  /// Bytes of weights.
  std::size_t bytes() const { return attention_.bytes() + up_.bytes() + down_.bytes(); }

  /// Passes tokens X [n×d] through, where `read` tokens before them are in the cache already.
  void apply(RowMajorMatrix& X, std::size_t read, CausalAttention::Cache& cache, std::size_t threads) const {
    X += attention_(norm1_(X), read, cache, threads);
    RowMajorMatrix inner;
    RowMajorMatrix outer;
    up_.apply(norm2_(X), inner, threads);
    constexpr float half_root = 0.70710678F;
    inner = 0.5F * inner.array() * (1.0F + (half_root * inner.array()).erf());
    down_.apply(inner, outer, threads);
    X += outer;
  }

 private:
  LayerNorm norm1_;
  CausalAttention attention_;
  LayerNorm norm2_;
  Linear up_;
  Linear down_;
};

}  // namespace topksoftmax::examples
