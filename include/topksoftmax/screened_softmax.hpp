// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/outside_mass.hpp"
#include "topksoftmax/top_k.hpp"
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

/// A backend made of a screener: screen → rescore → select → normalise. Where the mass outside of its
/// candidates was learned, log Z counts it (Normalizer::learned).
template <Screener S>
class ScreenedSoftmax : public TopKSoftmax {
 public:
  /// Over a layer and a screener of it, with what was learned of the mass outside of its candidates.
  ScreenedSoftmax(SoftmaxLayer layer, S screener, std::optional<OutsideMass> outside = std::nullopt)
      : TopKSoftmax(std::move(layer)), screener_(std::move(screener)), outside_(std::move(outside)) {}

  /// What chooses the candidates.
  const S& screener() const { return screener_; }
  /// The screener's name.
  std::string_view name() const override { return screener_.name(); }
  /// Those of the screener, and of what was learned.
  std::size_t index_bytes() const override {
    return screener_.index_bytes() + (outside_ ? outside_->bytes() : 0);
  }
  /// Where the mass outside was learned, how far log Z was off on contexts held out. Nothing where queries
  /// have another effort than it was learned for (usual_effort()).
  std::optional<LogZError> log_z_error() const override {
    return outside_ && usual_effort() == 0 ? std::optional(outside_->error()) : std::nullopt;
  }

 protected:
  /// What the screener proposes, and the mass outside of it where that was learned.
  Candidates screen(const Query& query, Workspace& workspace) const {
    Candidates candidates = screener_.screen(query, workspace);
    const bool leaves_some_out = candidates.ids.size() < layer().vocab();
    if (outside_ && leaves_some_out) outside_->count(query, candidates);
    return candidates;
  }

  /// Screens, rescores, selects and normalises.
  void do_query(const Query& query, Workspace& workspace, TopK& answer) const override {
    answer_from_candidates(layer(), query, screen(query, workspace), workspace, answer);
  }

  /// Saves the screener, if it can be saved, and what was learned.
  void do_save(IndexWriter& out) const override {
    if constexpr (requires { screener_.save(out); }) {
      screener_.save(out);
      save_outside(out);
    } else {
      TopKSoftmax::do_save(out);
    }
  }

  /// The part of do_save() that is not the screener's.
  void save_outside(IndexWriter& out) const {
    if (outside_) outside_->save(out);
  }

 private:
  std::optional<Candidates> do_candidates(const Query& query, Workspace& workspace) const override {
    return screen(query, workspace);
  }

  S screener_;
  std::optional<OutsideMass> outside_;
};

}  // namespace TOPKSOFTMAX_NAMESPACE
