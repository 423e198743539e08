// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "peers/point_index.hpp"
#include "topksoftmax/exhaustive.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"

namespace topksoftmax::bench {

/// Rows with their biases as one more coordinate [V×(d + 1)].
inline RowMajorMatrix biased_rows(const SoftmaxLayer& layer) {
  const RowMajorMatrix W = layer.weights();
  RowMajorMatrix points(W.rows(), W.cols() + 1);
  points.leftCols(W.cols()) = W;
  points.col(W.cols()) = layer.biases();
  return points;
}

/// A search library asked as its users ask it: k nearest points, whose products are the logits. log Z is over
/// the k tokens. It knows no masks and no biases, so such queries score every token. Its work is what the
/// index tells of it.
class PointPeer final : public TopKSoftmax {
 public:
  PointPeer(SoftmaxLayer layer, std::string name, std::unique_ptr<const PointIndex> index, std::size_t effort)
      : TopKSoftmax(std::move(layer)), name_(std::move(name)), index_(std::move(index)), effort_(effort) {}

  std::string_view name() const override { return name_; }
  std::size_t index_bytes() const override { return index_->bytes(); }

 private:
  struct Scratch {
    ScratchBuffer point;
    ScratchBuffer ids;
    ScratchBuffer products;
    ScratchBuffer best;
  };

  void do_query(const Query& query, Workspace& workspace, TopK& answer) const override {
    if (!query.edits.empty()) return answer_from_all(layer(), query, workspace, answer);
    const std::size_t dim = layer().dim();
    Scratch& scratch = workspace.scratch<Scratch>();
    auto* const point = scratch.point.get<float>(dim + 1);
    std::copy_n(query.h, dim, point);
    point[dim] = 1.0F;
    auto* const ids = scratch.ids.get<std::int64_t>(query.k);
    auto* const products = scratch.products.get<float>(query.k);
    const std::size_t found =
        index_->search(point, query.k, query.effort != 0 ? query.effort : effort_, ids, products);
    if (found < query.k) return answer_from_all(layer(), query, workspace, answer);
    kernels::transform(layer().transform(), products, found);

    kernels::TopKHeap heap(scratch.best.get<ScoredToken>(query.k), query.k);
    double sum = 0.0;
    for (std::size_t i = 0; i < found; ++i) {
      heap.push({products[i], static_cast<TokenId>(ids[i])});
      sum += std::exp(static_cast<double>(products[i]) - static_cast<double>(products[0]));
    }
    store_tokens(heap.sort(), answer);
    if (query.probabilities) {
      store_log_z(Normalizer::candidates, static_cast<double>(products[0]) + std::log(sum), answer);
    } else {
      store_no_log_z(answer);
    }
    answer.certified = false;
    answer.work = index_->work();
  }

  std::string name_;
  std::unique_ptr<const PointIndex> index_;
  std::size_t effort_;
};

}  // namespace topksoftmax::bench
