// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/query.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Checked queries that are answered together, of contexts at even distances in memory: all with the same
/// options, or each with options of its own. A view: the queries must outlive it.
class QueryBatch {
 public:
  /// `count` contexts at query.h, `stride` floats from one to the next, with the same options.
  QueryBatch(const Query& query, std::size_t stride, std::size_t count)
      : queries_(&query), apart_(0), h_(query.h), stride_(stride), size_(count) {}

  /// One query.
  explicit QueryBatch(const Query& query) : QueryBatch(query, 0, 1) {}

  /// Queries with options of their own, of which each one's context lies `stride` floats behind that of the
  /// one before; at least one.
  QueryBatch(std::span<const Query> queries, std::size_t stride)
      : queries_(queries.data()), apart_(1), h_(queries[0].h), stride_(stride), size_(queries.size()) {}

  /// Number of queries.
  std::size_t size() const { return size_; }

  /// Whether they differ in their contexts alone.
  bool same_options() const { return apart_ == 0; }

  /// The first of the contexts.
  const float* contexts() const { return h_; }
  /// Floats from one context to the next.
  std::size_t stride() const { return stride_; }

  /// Query q. Where there are none, the first still tells the options that all would have.
  Query operator[](std::size_t q) const {
    Query query = queries_[q * apart_];
    query.h = h_ + q * stride_;
    return query;
  }

  /// What query q changes in the logits.
  const kernels::LogitEdits& edits(std::size_t q) const { return queries_[q * apart_].edits; }

  /// Queries `first` … first + count − 1, at least one of them.
  QueryBatch part(std::size_t first, std::size_t count) const {
    QueryBatch some = *this;
    some.queries_ += first * apart_;
    some.h_ += first * stride_;
    some.size_ = count;
    return some;
  }

  /// Whether is(query) holds for the options of all.
  template <class Is>
  bool all_of(const Is& is) const {
    return std::all_of(queries_, queries_ + (same_options() ? 1 : size_), is);
  }

  /// The same for those of any.
  template <class Is>
  bool any_of(const Is& is) const {
    return std::any_of(queries_, queries_ + (same_options() ? 1 : size_), is);
  }

 private:
  const Query* queries_;
  std::size_t apart_;  ///< queries from the options of one context to those of the next: 0 or 1
  const float* h_;
  std::size_t stride_;
  std::size_t size_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE
