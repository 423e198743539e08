// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/heads/head_source.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax::bench {

/// A softmax layer with contexts of its model, as the harness works with it.
struct Head {
  std::string file;
  std::string name;                  ///< printable()
  SoftmaxLayer layer;                ///< its weights in the type that they are stored in
  RowMajorMatrix train;              ///< [N×d], what backends learn from; may be empty
  RowMajorMatrix test;               ///< [M×d], what they are judged on; may be empty
  std::vector<std::int64_t> counts;  ///< [V], how often each token occurred; may be empty
  std::vector<TokenId> tokens = {};  ///< that the rows are; empty: row i is token i
  bool divided = false;              ///< ContextSets::divided
};

/// Reads a head: a head file, a model's folder or safetensors file as Transformers save it, a GGUF file, or
/// NumPy's arrays; and the contexts of a file of their own, if one is given. Weights are used where they lie,
/// in the type that they are stored in. Throws Error where one of the files cannot be read, and for contexts
/// that are not finite.
Head load_head(const HeadSource& source);

/// The same head with its layer in memory of its own, where an engine would have it: a file may hold rows at
/// any address, and vectors that cross cache lines read slower.
Head on_cache_lines(Head head);

/// Throws Error where a head has no contexts to learn from.
void require_training_contexts(const Head& head);
/// Throws Error where it has none to measure on.
void require_test_contexts(const Head& head);

}  // namespace topksoftmax::bench
