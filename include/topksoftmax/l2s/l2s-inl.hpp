// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/l2s/l2s.hpp"
#include "topksoftmax/l2s/model.hpp"
#include "topksoftmax/l2s/options.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

TOPKSOFTMAX_INLINE L2SScreener::L2SScreener(const IndexReader& in) : vocab_(in.vocab()), dim_(in.dim()) {
  in.option("name", name_);
  L2SOptions::visit_index(options_, in.options());
  const StoredArray<float> v = in.floats("clusters", {IndexReader::any, dim_});
  if (v.size() == 0) throw in.damaged("clusters", "has no cluster");
  model_.v.assign(v.begin(), v.end());
  v_ = detail::BestRow(detail::StoredRows(StoredArray<float>::copy(model_.v), dim_));
  model_.clusters = v.size() / dim_;
  const StoredArray<TokenId> ids = in.tokens("ids", {IndexReader::any});
  model_.sets = {in.offsets("offsets", {model_.clusters + 1}, ids.size()), ids};
  for (std::size_t t = 0; t < model_.clusters; ++t) {
    const std::span<const TokenId> set = model_.sets[t];
    if (std::adjacent_find(set.begin(), set.end(), std::greater_equal<>()) != set.end()) {
      throw in.damaged("ids", "are not ascending in the set of cluster " + std::to_string(t));
    }
  }
  codes_ = detail::CodedSets(in, model_.sets);
  const StoredArray<double> history = in.doubles("history", {IndexReader::any, 3});
  for (std::size_t i = 0; i < history.size(); i += 3) {
    model_.history.push_back({history[i], history[i + 1], history[i + 2]});
  }
}

TOPKSOFTMAX_INLINE void L2SScreener::save(IndexWriter& out) const {
  out.kind(L2S::kind);
  out.option("name", name_);
  L2SOptions::visit_index(options_, out.options());
  out.array("clusters", {model_.clusters, dim_}, StoredArray<float>::borrow(model_.v));
  out.array("offsets", {model_.sets.starts().size()}, model_.sets.starts());
  out.array("ids", {model_.sets.values().size()}, model_.sets.values());
  codes_.save(out);
  std::vector<double> history;
  for (const ScreeningLoss& loss : model_.history) {
    history.insert(history.end(), {loss.objective, loss.missed, loss.set_size});
  }
  out.array("history", {model_.history.size(), 3}, StoredArray<double>::own(history));
}

}  // namespace TOPKSOFTMAX_NAMESPACE
