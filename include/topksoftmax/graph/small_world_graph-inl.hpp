// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/graph/small_world_graph.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/storage/stored_lists.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

inline constexpr const char* kUpperLayers = "upper_layers";
inline constexpr const char* kGround = "ground";

/// The name of the i-th upper layer's tensors.
inline std::string upper_name(std::size_t i) {
  return "upper." + std::to_string(i);
}

TOPKSOFTMAX_INLINE Links::Links(const std::vector<std::vector<TokenId>>& of_rows)
    : targets_(StoredLists<TokenId>::copy(of_rows)) {
  find_most();
}

TOPKSOFTMAX_INLINE Links::Links(const IndexReader& in, const std::string& name) {
  const StoredArray<TokenId> targets = in.tokens(name + ".targets", {IndexReader::any});
  targets_ = {in.offsets(name + ".offsets", {in.vocab() + 1}, targets.size()), targets};
  find_most();
}

TOPKSOFTMAX_INLINE void Links::save(IndexWriter& out, const std::string& name) const {
  out.array(name + ".offsets", {targets_.starts().size()}, targets_.starts());
  out.array(name + ".targets", {targets_.values().size()}, targets_.values());
}

TOPKSOFTMAX_INLINE void Links::find_most() {
  for (std::size_t row = 0; row < rows(); ++row) most_ = std::max(most_, targets_[row].size());
}

TOPKSOFTMAX_INLINE SmallWorldGraph::SmallWorldGraph(const IndexReader& in) {
  const StoredArray<TokenId> entries = in.tokens("entries", {IndexReader::any});
  if (entries.size() == 0) throw in.damaged("entries", "has no row to start from");
  entries_.assign(entries.begin(), entries.end());
  std::size_t layers = 0;
  in.option(kUpperLayers, layers);
  for (std::size_t i = 0; i < layers; ++i) upper_.emplace_back(in, upper_name(i));
  ground_ = Links(in, kGround);
}

TOPKSOFTMAX_INLINE void SmallWorldGraph::save(IndexWriter& out) const {
  out.array("entries", {entries_.size()}, StoredArray<TokenId>::borrow(entries_));
  out.option(kUpperLayers, upper_.size());
  for (std::size_t i = 0; i < upper_.size(); ++i) upper_[i].save(out, upper_name(i));
  ground_.save(out, kGround);
}

TOPKSOFTMAX_INLINE std::size_t SmallWorldGraph::reachable() const {
  Reached reached(ground_.rows());
  for (const TokenId entry : entries_) reached.add(entry, [this](TokenId row) { return ground_.of(row); });
  return reached.count();
}

TOPKSOFTMAX_INLINE std::size_t SmallWorldGraph::bytes() const {
  std::size_t bytes = ground_.bytes() + entries_.size() * sizeof(TokenId);
  for (const Links& layer : upper_) bytes += layer.bytes();
  return bytes;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
