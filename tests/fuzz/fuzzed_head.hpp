// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "conformance/backends.hpp"
#include "fuzz/choices.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k_softmax.hpp"

namespace topksoftmax::fuzz {

/// A layer and a backend over it, chosen by bytes, and Exact over the same layer.
class FuzzedHead {
 public:
  /// Makes both; throws where a good layer is refused, or a bad one accepted.
  FuzzedHead(const testing::Backend& backend, Choices& choices);

  FuzzedHead(const FuzzedHead&) = delete;
  FuzzedHead& operator=(const FuzzedHead&) = delete;

  /// Whether there is something to ask: what is not finite, and no contexts, may be refused.
  bool accepted() const { return head_ != nullptr; }

  /// Asks up to eight questions, one or a batch of contexts each, and compares the answers with Exact's.
  void ask(Choices& choices) const;

 private:
  const testing::Backend& backend_;
  RowMajorMatrix W_;
  Eigen::VectorXf b_;
  std::unique_ptr<TopKSoftmax> exact_;
  std::unique_ptr<TopKSoftmax> head_;
};

}  // namespace topksoftmax::fuzz
