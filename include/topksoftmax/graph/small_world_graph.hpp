// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/rows/stored_array.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Links from rows to rows.
class Links {
 public:
  Links() = default;
  explicit Links(const std::vector<std::vector<TokenId>>& of_rows);

  /// Reads what save() has written.
  Links(const IndexReader& in, const std::string& name);
  /// The tensors NAME.offsets U64 [V + 1] and NAME.targets I32 [*].
  void save(IndexWriter& out, const std::string& name) const;

  std::span<const TokenId> of(TokenId row) const {
    const auto r = static_cast<std::size_t>(row);
    return {targets_.data() + offsets_[r], offsets_[r + 1] - offsets_[r]};
  }
  std::size_t rows() const { return offsets_.size() == 0 ? 0 : offsets_.size() - 1; }
  /// The most links that any row has.
  std::size_t most() const { return most_; }
  std::size_t bytes() const {
    return offsets_.size() * sizeof(offsets_[0]) + targets_.size() * sizeof(TokenId);
  }

 private:
  void find_most();

  StoredArray<std::uint64_t> offsets_;  ///< [V + 1]
  StoredArray<TokenId> targets_;
  std::size_t most_ = 0;
};

struct SmallWorldOptions {
  std::size_t M = 16;
  std::size_t ef_construction = 200;
  std::uint64_t seed = 1;
};

/// A navigable small world over the transformed rows of a layer: HNSW (Malkov and Yashunin), built by
/// hnswlib with our distance. Every row can be reached from the rows where searches start, over ground links
/// alone.
class SmallWorldGraph {
 public:
  /// Searches start at `entries`, or, if there are none, where the upper layers lead them. Throws Error where
  /// hnswlib fails. Defined in graph/build.hpp.
  TOPKSOFTMAX_BUILD_INLINE SmallWorldGraph(const SoftmaxLayer& layer, const SmallWorldOptions& options,
                                           std::vector<TokenId> entries);

  /// Reads what save() has written.
  explicit SmallWorldGraph(const IndexReader& in);
  void save(IndexWriter& out) const;

  /// The links of the layer that every row is in.
  const Links& ground() const { return ground_; }
  /// The links of the layers above it, the sparsest first. Empty where the entries are given.
  const std::vector<Links>& upper() const { return upper_; }
  /// Where searches start: on the ground, or, if there are upper layers, in the sparsest of them (one row).
  std::span<const TokenId> entries() const { return entries_; }

  /// Rows that ground links lead to from the entries.
  std::size_t reachable() const;
  std::size_t bytes() const;

 private:
  std::vector<TokenId> entries_;
  std::vector<Links> upper_;
  Links ground_;
};

inline constexpr const char* kUpperLayers = "upper_layers";
inline constexpr const char* kGround = "ground";

/// The name of the i-th upper layer's tensors.
inline std::string upper_name(std::size_t i) {
  return "upper." + std::to_string(i);
}

/// The rows that links lead to.
class Reached {
 public:
  explicit Reached(std::size_t vocab) : is_(vocab, false) {}

  bool contains(TokenId row) const { return is_[static_cast<std::size_t>(row)]; }
  std::size_t count() const { return count_; }

  /// Adds a row and all that `links_of` leads to from it.
  template <class LinksOf>
  void add(TokenId row, const LinksOf& links_of) {
    pending_.push_back(row);
    while (!pending_.empty()) {
      const TokenId next = pending_.back();
      pending_.pop_back();
      if (contains(next)) continue;
      is_[static_cast<std::size_t>(next)] = true;
      ++count_;
      for (const TokenId target : links_of(next)) pending_.push_back(target);
    }
  }

 private:
  std::vector<bool> is_;
  std::size_t count_ = 0;
  std::vector<TokenId> pending_;
};

inline Links::Links(const std::vector<std::vector<TokenId>>& of_rows) {
  std::vector<std::uint64_t> offsets;
  offsets.reserve(of_rows.size() + 1);
  offsets.push_back(0);
  for (const auto& targets : of_rows) offsets.push_back(offsets.back() + targets.size());
  std::vector<TokenId> all;
  all.reserve(offsets.back());
  for (const auto& targets : of_rows) all.insert(all.end(), targets.begin(), targets.end());
  offsets_ = StoredArray<std::uint64_t>::own(std::move(offsets));
  targets_ = StoredArray<TokenId>::own(std::move(all));
  find_most();
}

inline Links::Links(const IndexReader& in, const std::string& name)
    : targets_(in.tokens(name + ".targets", {IndexReader::any})) {
  offsets_ = in.offsets(name + ".offsets", {in.vocab() + 1}, targets_.size());
  find_most();
}

inline void Links::save(IndexWriter& out, const std::string& name) const {
  out.array(name + ".offsets", {offsets_.size()}, offsets_);
  out.array(name + ".targets", {targets_.size()}, targets_);
}

inline void Links::find_most() {
  for (std::size_t row = 0; row < rows(); ++row) {
    most_ = std::max(most_, static_cast<std::size_t>(offsets_[row + 1] - offsets_[row]));
  }
}

inline SmallWorldGraph::SmallWorldGraph(const IndexReader& in) {
  const StoredArray<TokenId> entries = in.tokens("entries", {IndexReader::any});
  if (entries.size() == 0) throw in.damaged("entries", "has no row to start from");
  entries_.assign(entries.begin(), entries.end());
  std::size_t layers = 0;
  in.option(kUpperLayers, layers);
  for (std::size_t i = 0; i < layers; ++i) upper_.emplace_back(in, upper_name(i));
  ground_ = Links(in, kGround);
}

inline void SmallWorldGraph::save(IndexWriter& out) const {
  out.array("entries", {entries_.size()}, StoredArray<TokenId>::borrow(entries_));
  out.option(kUpperLayers, upper_.size());
  for (std::size_t i = 0; i < upper_.size(); ++i) upper_[i].save(out, upper_name(i));
  ground_.save(out, kGround);
}

inline std::size_t SmallWorldGraph::reachable() const {
  Reached reached(ground_.rows());
  for (const TokenId entry : entries_) reached.add(entry, [this](TokenId row) { return ground_.of(row); });
  return reached.count();
}

inline std::size_t SmallWorldGraph::bytes() const {
  std::size_t bytes = ground_.bytes() + entries_.size() * sizeof(TokenId);
  for (const Links& layer : upper_) bytes += layer.bytes();
  return bytes;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
