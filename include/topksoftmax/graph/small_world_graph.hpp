// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/learning/progress.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/storage/stored_lists.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Links from rows to rows.
class TOPKSOFTMAX_EXPORT Links {
 public:
  Links() = default;
  explicit Links(const std::vector<std::vector<TokenId>>& of_rows);

  /// Reads what save() has written.
  Links(const IndexReader& in, const std::string& name);
  /// The tensors NAME.offsets U64 [V + 1] and NAME.targets I32 [*].
  void save(IndexWriter& out, const std::string& name) const;

  std::span<const TokenId> of(TokenId row) const { return targets_[static_cast<std::size_t>(row)]; }
  std::size_t rows() const { return targets_.size(); }
  /// The most links that any row has.
  std::size_t most() const { return most_; }
  std::size_t bytes() const { return targets_.bytes(); }

 private:
  void find_most();

  StoredLists<TokenId> targets_;  ///< of every row
  std::size_t most_ = 0;
};

struct SmallWorldOptions {
  std::size_t M = 16;
  std::size_t ef_construction = 200;
  std::uint64_t seed = 1;
  StepProgress progress = {};  ///< told how many of the rows are inserted
};

/// A navigable small world over the transformed rows of a layer: HNSW (Malkov and Yashunin), built by
/// hnswlib with our distance. Every row can be reached from the rows where searches start, over ground links
/// alone.
class TOPKSOFTMAX_EXPORT SmallWorldGraph {
 public:
  /// Searches start at `entries`, or, if there are none, where the upper layers lead them. Throws Error where
  /// hnswlib fails, and what options.progress throws. Defined in graph/build.hpp.
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

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

#if defined(TOPKSOFTMAX_HEADER_ONLY)
#include "topksoftmax/graph/small_world_graph-inl.hpp"
#endif
