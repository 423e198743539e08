// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/screeners/l2s.hpp"

#include <algorithm>
#include <string>

#include "topksoftmax/error.hpp"
#include "topksoftmax/kernels/implementation.hpp"
#include "training/check_contexts.hpp"
#include "training/exact_labels.hpp"

namespace topksoftmax {

L2SScreener::L2SScreener(L2SModel model, std::size_t vocab, std::size_t dim, std::string_view name)
    : model_(std::move(model)), vocab_(vocab), dim_(dim), name_(name) {}

kernels::Rows L2SScreener::clusters() const {
  kernels::Rows rows;
  rows.data = model_.v.data();
  rows.count = model_.clusters;
  rows.dim = rows.stride = dim_;
  return rows;
}

Candidates L2SScreener::screen(const Query& query, Workspace& workspace) const {
  const kernels::Rows rows = clusters();
  const kernels::Implementation& kernel = kernels::active();
  Candidates candidates;
  candidates.screened = rows.count;
  candidates.bytes_read = rows.bytes(rows.count);
  if (query.effort <= 1) {
    candidates.ids = model_.sets.of(kernel.argmax(rows, query.h));
    return candidates;
  }
  if (query.effort >= rows.count) {
    candidates.everything = true;
    return candidates;
  }

  auto* const products = workspace.screen[0].get<float>(rows.count);
  kernel.scan(rows, 0, rows.count, query.h, products);
  kernels::TopKHeap best(workspace.screen[1].get<ScoredToken>(query.effort), query.effort);
  kernel.select(products, nullptr, rows.count, best);
  const std::span<const ScoredToken> visited = best.sort();
  std::size_t room = 0;
  for (const ScoredToken& cluster : visited)
    room += model_.sets.of(static_cast<std::size_t>(cluster.id)).size();
  auto* const ids = workspace.candidates.get<TokenId>(room);
  std::size_t count = 0;
  workspace.seen.clear(vocab_);
  for (const ScoredToken& cluster : visited) {
    for (const TokenId id : model_.sets.of(static_cast<std::size_t>(cluster.id))) {
      if (workspace.seen.insert(id)) ids[count++] = id;
    }
  }
  candidates.ids = {ids, count};
  return candidates;
}

std::size_t L2SScreener::index_bytes() const {
  return model_.v.size() * sizeof(float) + model_.sets.ids.size() * sizeof(TokenId) +
         model_.sets.offsets.size() * sizeof(std::size_t);
}

std::unique_ptr<L2S> L2S::train(SoftmaxLayer layer, const Contexts& contexts, const L2SOptions& options,
                                std::string_view name) {
  check_contexts(layer, contexts, "l2s");
  if (options.label_count == 0 || options.label_depth < options.label_count) {
    throw Error("l2s: label_count is " + std::to_string(options.label_count) + " and label_depth " +
                std::to_string(options.label_depth) +
                "; they must be at least 1, and the depth no less than the count");
  }
  if (options.progress) options.progress("labelling the contexts", 0.0);
  const Labels labels = exact_labels(layer, contexts, options.label_count, options.label_depth,
                                     options.near_miss_value, options.near_miss_temperature);
  L2SScreener screener(train_l2s(contexts, labels, options), layer.vocab(), layer.dim(), name);
  return std::unique_ptr<L2S>(new L2S(std::move(layer), std::move(screener)));
}

}  // namespace topksoftmax
