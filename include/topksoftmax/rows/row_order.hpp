// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/storage/stored_array.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The order in which an index keeps a layer's rows, which is the tokens' own unless another one is given.
class RowOrder {
 public:
  RowOrder() = default;
  /// tokens [V]: every one of them once.
  explicit RowOrder(StoredArray<TokenId> tokens) : tokens_(std::move(tokens)), places_(tokens_.size()) {
    for (std::size_t place = 0; place < tokens_.size(); ++place) {
      places_[static_cast<std::size_t>(tokens_[place])] = static_cast<TokenId>(place);
    }
  }

  bool is_natural() const { return tokens_.size() == 0; }
  TokenId token(std::size_t place) const {
    return is_natural() ? static_cast<TokenId>(place) : tokens_[place];
  }
  std::size_t place(TokenId token) const {
    return static_cast<std::size_t>(is_natural() ? token : places_[static_cast<std::size_t>(token)]);
  }
  const StoredArray<TokenId>& tokens() const { return tokens_; }
  std::size_t bytes() const { return (tokens_.size() + places_.size()) * sizeof(TokenId); }

 private:
  StoredArray<TokenId> tokens_;
  std::vector<TokenId> places_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
