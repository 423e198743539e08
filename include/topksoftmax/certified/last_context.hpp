// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// A copy of the mask over `vocab` tokens and of the biases of a query.
class EditsCopy {
 public:
  void copy(const kernels::LogitEdits& edits, std::size_t vocab) {
    is_masked_ = !edits.allowed.empty();
    bias_count_ = edits.bias_count;
    if (is_masked_) {
      auto* const words = words_.get<std::uint64_t>(word_count(vocab));
      for (std::size_t i = 0; i < word_count(vocab); ++i) words[i] = edits.allowed.block(i);
    }
    std::copy_n(edits.bias, bias_count_, biases_.get<TokenBias>(bias_count_));
  }

  bool equals(const kernels::LogitEdits& edits, std::size_t vocab) {
    if (is_masked_ == edits.allowed.empty() || bias_count_ != edits.bias_count) return false;
    if (is_masked_) {
      const auto* const words = words_.get<std::uint64_t>(word_count(vocab));
      for (std::size_t i = 0; i < word_count(vocab); ++i) {
        if (words[i] != edits.allowed.block(i)) return false;
      }
    }
    return std::equal(
        edits.bias, edits.bias + bias_count_, biases_.get<TokenBias>(bias_count_),
        [](const TokenBias& a, const TokenBias& b) { return a.id == b.id && a.bias == b.bias; });
  }

 private:
  static std::size_t word_count(std::size_t vocab) { return (vocab + 63) / 64; }

  bool is_masked_ = false;
  std::size_t bias_count_ = 0;
  ScratchBuffer words_;
  ScratchBuffer biases_;
};

/// Which context a workspace has last bounded, and with which index: so that QueryOptions::same_context is
/// taken at its word only where it is true.
class LastContext {
 public:
  /// CertifiedIndex::identity.
  using Identity = std::shared_ptr<const char>;

  void forget() { is_known_ = false; }

  /// Keeps a copy of h [dim], and of the edits of `vocab` rows where bounds depend on them.
  void remember(const Identity& index, const Query& query, std::size_t dim, std::size_t vocab,
                bool with_edits) {
    if (index_ != index) index_ = index;  // spares threads a reference count that they share
    std::copy_n(query.h, dim, h_.get<float>(dim));
    if (with_edits) edits_.copy(query.edits, vocab);
    is_known_ = true;
  }

  /// Whether the bounds that were made then are those of this query.
  bool is(const Identity& index, const Query& query, std::size_t dim, std::size_t vocab, bool with_edits) {
    return is_known_ && index == index_ &&
           std::memcmp(h_.get<float>(dim), query.h, dim * sizeof(float)) == 0 &&
           (!with_edits || edits_.equals(query.edits, vocab));
  }

 private:
  bool is_known_ = false;
  Identity index_;
  ScratchBuffer h_;
  EditsCopy edits_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
