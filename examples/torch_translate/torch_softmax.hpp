// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "topksoftmax/query.hpp"
#include "topksoftmax/query_batch.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax::examples {

/// The output layer as torch has it, on torch's threads: linear, log_softmax and topk, or where only the best
/// token is wanted, linear and max. Masks and biases are left out. The tensors are shared with the layer.
class TorchSoftmax final : public TopKSoftmax {
 public:
  TorchSoftmax(SoftmaxLayer layer, at::Tensor weight, at::Tensor bias)
      : TopKSoftmax(std::move(layer)), weight_(std::move(weight)), bias_(std::move(bias)) {}

  std::string_view name() const override { return "torch"; }
  std::size_t index_bytes() const override { return 0; }
  bool exhaustive() const override { return true; }

 private:
  void do_query(const Query& query, Workspace& workspace, TopK& answer) const override {
    do_query_batch(QueryBatch(query), workspace, &answer);
  }

  void do_query_batch(const QueryBatch& batch, Workspace& workspace, TopK* answers) const override {
    if (!batch.same_options()) return answer_one_by_one(batch, workspace, answers);
    const Query query = batch[0];
    const at::Tensor contexts =
        at::from_blob(const_cast<float*>(query.h), {static_cast<std::int64_t>(batch.size()), weight_.size(1)},
                      {static_cast<std::int64_t>(batch.stride()), 1},
                      at::TensorOptions(at::kFloat));  // which only reads it
    const at::Tensor logits = at::linear(contexts, weight_, bias_);
    const auto k = static_cast<std::int64_t>(query.k);
    const auto [values, ids] = query.k == 1 && !query.probabilities
                                   ? at::max(logits, 1, true)
                                   : at::topk(at::log_softmax(logits, 1), k, 1);
    for (std::size_t q = 0; q < batch.size(); ++q) {
      const float* const of_values = values.data_ptr<float>() + q * query.k;
      const std::int64_t* const of_ids = ids.data_ptr<std::int64_t>() + q * query.k;
      TopK& answer = answers[q];
      answer.ids.resize(query.k);
      for (std::size_t i = 0; i < query.k; ++i) answer.ids[i] = static_cast<TokenId>(of_ids[i]);
      answer.logits.assign(of_values, of_values + query.k);
      if (!query.probabilities) continue;
      answer.log_z = answer.log_z_low = answer.log_z_high = 0.0;  // of log-probabilities as logits
      answer.normalizer = Normalizer::exact;
    }
  }

  at::Tensor weight_;
  at::Tensor bias_;
};

}  // namespace topksoftmax::examples
