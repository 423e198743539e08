// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/exact.hpp"

#include <utility>

#include "io/index_reader.hpp"
#include "io/index_writer.hpp"
#include "topksoftmax/exhaustive.hpp"
#include "topksoftmax/kernels/implementation.hpp"

namespace topksoftmax {

void Exact::do_query(const Query& query, Workspace& workspace, TopK& answer) const {
  const std::size_t vocab = layer().vocab();
  const kernels::Implementation& kernel = kernels::active();
  auto* const logits = workspace.logits.get<float>(vocab);
  kernel.scan(layer().rows(), 0, vocab, query.h, logits);
  kernels::apply_edits(query.edits, vocab, logits);

  kernels::LogSumExp sum;
  if (query.probabilities) {
    sum.max = kernel.max(logits, vocab);
    sum.sum = kernel.sum_exp(logits, vocab, sum.max);
  }
  kernels::TopKHeap heap(workspace.heap.get<ScoredToken>(query.k), query.k);
  kernel.select(logits, nullptr, vocab, heap);
  store_exact(heap, query, sum, full_scan_work(layer()), answer);
}

void Exact::do_save(IndexWriter& out) const {
  out.kind(name());
}

std::unique_ptr<Exact> Exact::load(const std::filesystem::path& path, SoftmaxLayer layer) {
  return load(IndexReader::open(path, std::move(layer), "exact"));
}

std::unique_ptr<Exact> Exact::load(const IndexReader& in) {
  return make(in.layer());
}

}  // namespace topksoftmax
