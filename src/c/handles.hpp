// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "topksoftmax/c/topksoftmax.h"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"

struct topk_layer {
  topksoftmax::SoftmaxLayer layer;
  std::vector<topksoftmax::TokenId> token_of_row = {};  ///< empty: row i is token i
};

struct topk_backend {
  explicit topk_backend(std::shared_ptr<const topksoftmax::TopKSoftmax> made)
      : backend(std::move(made)), name(backend->name()) {}

  std::shared_ptr<const topksoftmax::TopKSoftmax> backend;  ///< and its cursors'
  std::string name;                                         ///< ended by a zero
};

namespace topksoftmax::c {

/// The caller's options as C++ takes them, the biases in `biases`. Throws std::invalid_argument for those
/// that C++ could not even be told.
QueryOptions options_of(const topk_query_options* given, std::vector<TokenBias>& biases);

}  // namespace topksoftmax::c
