// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/top_k_softmax.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The only thing in which the systems differ: a context in, a set of candidate tokens out. Screening is
/// const, thread-safe, deterministic, and works in a scratch of its own of the workspace that it is lent.
/// Anyone may write one. One that has a member `save(IndexWriter&) const` can be saved; save() of others
/// throws Error.
template <class S>
concept Screener = requires(const S& screener, const Query& query, Workspace& workspace) {
  { screener.screen(query, workspace) } -> std::same_as<Candidates>;
  { screener.name() } -> std::convertible_to<std::string_view>;
  { screener.index_bytes() } -> std::convertible_to<std::size_t>;
};

/// A backend made of a screener: screen → rescore → select → normalise.
template <Screener S>
class ScreenedSoftmax : public TopKSoftmax {
 public:
  ScreenedSoftmax(SoftmaxLayer layer, S screener)
      : TopKSoftmax(std::move(layer)), screener_(std::move(screener)) {}

  const S& screener() const { return screener_; }
  std::string_view name() const override { return screener_.name(); }
  std::size_t index_bytes() const override { return screener_.index_bytes(); }

 protected:
  void do_query(const Query& query, Workspace& workspace, TopK& answer) const override {
    answer_from_candidates(layer(), query, screener_.screen(query, workspace), workspace, answer);
  }

 private:
  std::optional<Candidates> do_screen(const Query& query, Workspace& workspace) const override {
    return screener_.screen(query, workspace);
  }

  void do_save(IndexWriter& out) const override {
    if constexpr (requires { screener_.save(out); }) {
      screener_.save(out);
    } else {
      TopKSoftmax::do_save(out);
    }
  }

  S screener_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE
