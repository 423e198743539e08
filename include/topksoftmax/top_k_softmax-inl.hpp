// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/candidates_edited.hpp"
#include "topksoftmax/check_query.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/exhaustive.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/query_batch.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/row_map.hpp"
#include "topksoftmax/shared_scan.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/vocabulary_bounds.hpp"
#include "topksoftmax/workspace.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Answers of a batch whose ids are still numbers of rows.
struct RowAnswers {
  std::vector<TopK> found;
};

/// The ids of candidates, where they are not the numbers of their rows.
struct NamedCandidates {
  ScratchBuffer ids;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

TOPKSOFTMAX_INLINE Query TopKSoftmax::check(const float* h, std::size_t dim,
                                            const QueryOptions& options) const {
  detail::check_dimension(dim, layer_);
  detail::check_limits(options);
  if (!options.allowed.empty() && options.allowed.tokens() < vocab()) {
    throw std::invalid_argument("query: the mask has bits for " + std::to_string(options.allowed.tokens()) +
                                " tokens; V is " + std::to_string(vocab()));
  }
  detail::check_biases(options.logit_bias, vocab());
  Query query;
  query.h = h;
  query.k = std::min(options.k, vocab());
  query.edits = {options.allowed, options.logit_bias.data(), options.logit_bias.size()};
  query.effort = options.effort;
  query.probabilities = options.probabilities;
  query.log_z_tolerance = options.log_z_tolerance;
  query.same_context = options.same_context;
  return as_usual(query);
}

/// The same of one context, of which every value is looked at.
TOPKSOFTMAX_INLINE Query TopKSoftmax::check_one(std::span<const float> h, const QueryOptions& options) const {
  const Query query = check(h.data(), h.size(), options);
  detail::check_context(h.data(), h.size());
  return query;
}

/// What backends are handed of a checked query.
TOPKSOFTMAX_INLINE Query TopKSoftmax::on_rows(Query query, Workspace& workspace) const {
  if (row_map_) {
    query.k = std::min(query.k, row_map_->tokens());
    query.edits = row_map_->on_rows(query.edits, workspace);
  }
  const AllowedTokens& allowed = query.edits.allowed;
  query.forbids_few = !allowed.empty() && rows_ - allowed.count(rows_) <= detail::few_forbidden(rows_);
  return query;
}

/// Answers queries with the same options.
TOPKSOFTMAX_INLINE void TopKSoftmax::answer_chunk(const QueryBatch& batch, Workspace& workspace,
                                                  TopK* answers) const {
  if (!row_map_) return answer_rows(batch, workspace, answers);
  const auto name = [this](TopK& answer) {
    for (TokenId& id : answer.ids) id = row_map_->token_of(id);
  };
  if (batch.size() == 1) {
    answer_rows(batch, workspace, answers);
    return name(answers[0]);
  }
  // Not in `answers`: where memory runs out, some of them would be answers of rows.
  auto& found = workspace.scratch<detail::RowAnswers>().found;
  if (found.size() < batch.size()) found.resize(batch.size());
  answer_rows(batch, workspace, found.data());
  for (std::size_t q = 0; q < batch.size(); ++q) {
    name(found[q]);
    answers[q].ids.reserve(found[q].size());
    answers[q].logits.reserve(found[q].size());
    answers[q] = found[q];
  }
}

/// How many tokens are allowed, where these are so few that they are simply scored.
TOPKSOFTMAX_INLINE std::optional<std::size_t> TopKSoftmax::few_allowed(const Query& query) const {
  if (query.edits.allowed.empty()) return std::nullopt;
  const std::size_t allowed = query.edits.allowed.count(rows_);
  if (allowed > detail::few_allowed(rows_) && allowed > query.k) return std::nullopt;
  return allowed;
}

TOPKSOFTMAX_INLINE void TopKSoftmax::answer_rows(const QueryBatch& batch, Workspace& workspace,
                                                 TopK* answers) const {
  const Query query = batch[0];
  if (const std::optional<std::size_t> allowed = few_allowed(query)) {
    Query limited = query;
    limited.k = std::min(query.k, *allowed);
    return do_query_allowed({limited, batch.stride(), batch.size()}, *allowed, workspace, answers);
  }
  if (batch.size() == 1) return do_query(query, workspace, answers[0]);
  do_query_batch(batch, workspace, answers);
}

TOPKSOFTMAX_INLINE void TopKSoftmax::query(std::span<const float> h, const QueryOptions& options,
                                           Workspace& workspace, TopK& answer) const {
  const Query query = admit([&] { return on_rows(check_one(h, options), workspace); });
  answer_chunk(QueryBatch(query), workspace, &answer);
}

TOPKSOFTMAX_INLINE void TopKSoftmax::query(std::span<const float> h, const QueryOptions& options,
                                           std::span<Workspace> workspaces, TopK& answer,
                                           const Executor& executor) const {
  admit([&] { detail::check_workspaces("query", workspaces); });
  const detail::LentCrew crew(workspaces, executor);
  query(h, options, workspaces[0], answer);
}

TOPKSOFTMAX_INLINE std::optional<Candidates> TopKSoftmax::candidates(const float* h, std::size_t dim,
                                                                     const QueryOptions& options,
                                                                     Workspace& workspace) const {
  const Query query = on_rows(check_one({h, dim}, options), workspace);
  std::optional<Candidates> found = do_candidates(query, workspace);
  if (found && (few_allowed(query) || !detail::has_answer(*found, query, rows_, workspace)))
    found->everything = true;
  if (found && !found->everything) detail::take_off_forbidden(layer_, query, workspace, *found);
  if (found && row_map_) name_candidates(*found, workspace);
  return found;
}

/// Turns the rows of candidates into tokens, and drops those that are none.
TOPKSOFTMAX_INLINE void TopKSoftmax::name_candidates(Candidates& candidates, Workspace& workspace) const {
  const std::span<const TokenId> rows = candidates.ids;
  auto* const ids = workspace.scratch<detail::NamedCandidates>().ids.get<TokenId>(rows.size());
  std::size_t count = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ids[count] = row_map_->token_of(rows[i]);
    if (ids[count] == RowMap::none) continue;
    if (candidates.logits != nullptr) candidates.logits[count] = candidates.logits[i];
    ++count;
  }
  if (count < rows.size()) candidates.packed = nullptr;  // it has their rows too
  candidates.ids = {ids, count};
}

TOPKSOFTMAX_INLINE std::optional<Candidates> TopKSoftmax::do_candidates(const Query& /*query*/,
                                                                        Workspace& /*workspace*/) const {
  return std::nullopt;
}

TOPKSOFTMAX_INLINE void TopKSoftmax::save(IndexWriter& out) const {
  do_save(out);
  if (usual_effort_ != 0) out.effort(usual_effort_);
}

TOPKSOFTMAX_INLINE void TopKSoftmax::do_save(IndexWriter&) const {
  throw Error(std::string(name()) + ": this backend has no index that can be saved");
}

TOPKSOFTMAX_INLINE void TopKSoftmax::do_query_allowed(const QueryBatch& batch, std::size_t allowed,
                                                      Workspace& workspace, TopK* answers) const {
  for (std::size_t q = 0; q < batch.size(); ++q) {
    answer_from_allowed(layer_, batch[q], allowed, workspace, answers[q]);
  }
}

TOPKSOFTMAX_INLINE void TopKSoftmax::do_logits_batch(const QueryBatch& batch, Workspace& workspace,
                                                     float* logits) const {
  score_allowed(layer_, batch, workspace, logits);
}

TOPKSOFTMAX_INLINE void TopKSoftmax::do_logits_of(const float* h, std::span<const TokenId> rows,
                                                  const Workspace& workspace, std::span<float> logits) const {
  scan_gathered(workspace, layer_.rows(), rows.data(), rows.size(), h, logits.data());
}

}  // namespace TOPKSOFTMAX_NAMESPACE
