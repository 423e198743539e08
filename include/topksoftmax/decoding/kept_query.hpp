// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A query with a mask and biases of its own.
class KeptQuery {
 public:
  KeptQuery() = default;
  KeptQuery(KeptQuery&&) = default;  // what the query refers to stays where it is
  KeptQuery& operator=(KeptQuery&&) = default;

  /// Copies a query and what it refers to, into the memory of the one before.
  void keep(const QueryOptions& query) {
    biases_.assign(query.logit_bias.begin(), query.logit_bias.end());
    query_ = query;
    query_.allowed = query.allowed.copied_to(words_);
    query_.logit_bias = biases_;
  }

  /// The query, which refers to this.
  const QueryOptions& query() const { return query_; }

 private:
  QueryOptions query_;
  std::vector<std::uint32_t> words_;
  std::vector<TokenBias> biases_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
