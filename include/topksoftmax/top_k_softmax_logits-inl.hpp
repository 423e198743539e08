// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "topksoftmax/bounded_tokens.hpp"
#include "topksoftmax/check_query.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/logit_deviation.hpp"
#include "topksoftmax/nucleus.hpp"
#include "topksoftmax/numeric/number_text.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/row_map.hpp"
#include "topksoftmax/sampled_log_z.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/vocabulary_bounds.hpp"
#include "topksoftmax/workspace.hpp"

// What TopKSoftmax tells of logits beside the best ones.
namespace TOPKSOFTMAX_NAMESPACE::detail {

/// All logits, for callers that ask for them.
struct LogitsScratch {
  ScratchBuffer values;
  ScratchBuffer of_rows;
};

/// The rows of tokens that are bounded.
struct RowsOfTokens {
  ScratchBuffer rows;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

TOPKSOFTMAX_INLINE std::span<const float> TopKSoftmax::logits_batch(const float* H, std::size_t batch,
                                                                    std::size_t dim, std::size_t stride,
                                                                    const QueryOptions& options,
                                                                    Workspace& workspace) const {
  float* values = nullptr;
  const Query query = admit([&] {
    const Query checked = on_rows(check(H, dim, options), workspace);
    for (std::size_t q = 0; q < batch; ++q) detail::check_context(H + q * stride, dim);
    auto& scratch = workspace.scratch<detail::LogitsScratch>();
    values = (row_map_ ? scratch.of_rows : scratch.values).get<float>(batch * rows_);
    return checked;
  });
  do_logits_batch({query, stride, batch}, workspace, values);
  if (!row_map_) return {values, batch * rows_};
  auto* const of_tokens = workspace.scratch<detail::LogitsScratch>().values.get<float>(batch * vocab());
  for (std::size_t q = 0; q < batch; ++q) row_map_->scatter(values + q * rows_, of_tokens + q * vocab());
  return {of_tokens, batch * vocab()};
}

TOPKSOFTMAX_INLINE std::span<const float> TopKSoftmax::logits_batch(const Contexts& contexts,
                                                                    const QueryOptions& options,
                                                                    std::span<Workspace> workspaces,
                                                                    const Executor& executor) const {
  admit([&] { detail::check_workspaces("logits_batch", workspaces); });
  const detail::LentCrew crew(workspaces, executor);
  return logits_batch(contexts.data, contexts.count, contexts.dim, contexts.stride, options, workspaces[0]);
}

TOPKSOFTMAX_INLINE std::span<const float> TopKSoftmax::logits_each(const Contexts& contexts,
                                                                   std::span<const QueryOptions> options,
                                                                   std::span<Workspace> workspaces,
                                                                   const Executor& executor) const {
  const std::span<const Query> queries =
      admit([&] { return check_each("logits_each", contexts, options, workspaces); });
  const std::span<const float> logits = logits_batch(contexts, {}, workspaces, executor);
  // Where they are: the scratch does not grow.
  auto* const edited = workspaces[0].scratch<detail::LogitsScratch>().values.get<float>(logits.size());
  for (std::size_t q = 0; q < queries.size(); ++q) {
    kernels::apply_edits(queries[q].edits, vocab(), edited + q * vocab());
  }
  return logits;
}

TOPKSOFTMAX_INLINE void TopKSoftmax::logits_of(std::span<const float> h, std::span<const TokenId> ids,
                                               const QueryOptions& options, const Workspace& workspace,
                                               std::span<float> logits) const {
  const Query query = admit([&] {
    const Query checked = check_one(h, options);
    detail::check_tokens("logits_of", ids, logits.size(), vocab());
    return checked;
  });
  score_tokens(h, ids, workspace, logits);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const TokenBias* const bias = query.edits.bias_of(ids[i]);
    const bool has_row = logits[i] != detail::kForbidden;
    if (has_row && bias != nullptr) logits[i] = kernels::add_bias(logits[i], bias->bias);
    if (!query.edits.allows(ids[i])) logits[i] = detail::kForbidden;
  }
}

/// The logits of tokens as the layer has them; −∞ for a token without a row.
TOPKSOFTMAX_INLINE void TopKSoftmax::score_tokens(std::span<const float> h, std::span<const TokenId> ids,
                                                  const Workspace& workspace, std::span<float> logits) const {
  if (!row_map_) return do_logits_of(h.data(), ids, workspace, logits);
  std::array<TokenId, 1024> rows;
  for (std::size_t first = 0; first < ids.size(); first += rows.size()) {
    const std::span<const TokenId> some = ids.subspan(first, std::min(rows.size(), ids.size() - first));
    float* const of_some = logits.data() + first;
    std::size_t count = 0;
    for (const TokenId id : some) {
      rows[count] = row_map_->row_of(id);
      if (rows[count] != RowMap::none) ++count;
    }
    do_logits_of(h.data(), {rows.data(), count}, workspace, {of_some, count});
    for (std::size_t i = some.size(); count < i--;) {  // the others are in their places
      of_some[i] = row_map_->row_of(some[i]) != RowMap::none ? of_some[--count] : detail::kForbidden;
    }
  }
}

TOPKSOFTMAX_INLINE std::optional<SampledLogZ> TopKSoftmax::sample_log_z(std::span<const float> h,
                                                                        const SampledLogZOptions& how,
                                                                        const QueryOptions& options,
                                                                        Workspace& workspace) const {
  const Query query = check_one(h, options);
  if (!(how.error > 0.0)) throw detail::unusable_error("sample_log_z", how.error, "above 0");
  detail::check_temperature("sample_log_z", how.temperature);
  if (count_allowed(options.allowed) == 0) throw std::invalid_argument("sample_log_z: no token is allowed");
  const VocabularyBounds* const bounds = vocabulary_bounds();
  if (bounds == nullptr) return std::nullopt;
  return bounds->do_sample_log_z(on_rows(query, workspace), how, workspace);
}

TOPKSOFTMAX_INLINE void TopKSoftmax::upper_bounds(std::span<const float> h, std::span<const TokenId> ids,
                                                  const QueryOptions& options, Workspace& workspace,
                                                  std::span<float> bounds) const {
  const Query query = check_one(h, options);
  detail::check_tokens("upper_bounds", ids, bounds.size(), vocab());
  const Query of_rows = on_rows(query, workspace);
  std::span<const TokenId> rows = ids;
  if (row_map_) {
    auto* const mapped = workspace.scratch<detail::RowsOfTokens>().rows.get<TokenId>(ids.size());
    constexpr TokenId kAnyRow = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) mapped[i] = std::max(row_map_->row_of(ids[i]), kAnyRow);
    rows = {mapped, ids.size()};
  }
  const VocabularyBounds* const known = vocabulary_bounds();
  if (known == nullptr || !known->do_upper_bounds(of_rows, rows, workspace, bounds.data())) {
    std::fill(bounds.begin(), bounds.end(), std::numeric_limits<float>::infinity());
  }
  if (!row_map_) return;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (row_map_->row_of(ids[i]) == RowMap::none) bounds[i] = detail::kForbidden;
  }
}

TOPKSOFTMAX_INLINE bool TopKSoftmax::likely_tokens(std::span<const float> h, std::size_t count,
                                                   const QueryOptions& options, Workspace& workspace,
                                                   std::vector<ScoredToken>& tokens) const {
  const Query query = check_one(h, options);
  tokens.clear();
  const VocabularyBounds* const bounds = vocabulary_bounds();
  if (bounds == nullptr ||
      !bounds->do_likely_tokens(on_rows(query, workspace), std::min(count, rows_), workspace, tokens)) {
    return false;
  }
  if (row_map_) {
    for (ScoredToken& token : tokens) token.id = row_map_->token_of(token.id);
  }
  return true;
}

TOPKSOFTMAX_INLINE bool TopKSoftmax::tokens_reaching(std::span<const float> h, float least,
                                                     const QueryOptions& options, Workspace& workspace,
                                                     BoundedTokens& tokens) const {
  const Query query = check_one(h, options);
  tokens.clear();
  const VocabularyBounds* const bounds = vocabulary_bounds();
  if (bounds == nullptr || !bounds->do_tokens_reaching(on_rows(query, workspace), least, workspace, tokens)) {
    return false;
  }
  if (row_map_) {
    for (TokenId& id : tokens.ids) id = row_map_->token_of(id);
  }
  return true;
}

TOPKSOFTMAX_INLINE std::optional<NucleusPlace> TopKSoftmax::place_in_nucleus(std::span<const float> h,
                                                                             const ScoredToken& token,
                                                                             const Nucleus& nucleus,
                                                                             const QueryOptions& options,
                                                                             Workspace& workspace) const {
  const Query query = check_one(h, options);
  detail::check_tokens("place_in_nucleus", {&token.id, 1}, 1, vocab());
  if (!(nucleus.share > 0.0 && nucleus.share < 1.0)) {
    throw std::invalid_argument("place_in_nucleus: share is " + detail::value_text(nucleus.share) +
                                "; it must be above 0 and below 1");
  }
  if (!(nucleus.error >= 0.0)) throw detail::unusable_error("place_in_nucleus", nucleus.error, "at least 0");
  detail::check_temperature("place_in_nucleus", nucleus.temperature);
  ScoredToken of_row = token;
  if (row_map_) of_row.id = row_map_->row_of(token.id);
  if (of_row.id == RowMap::none) {
    throw std::invalid_argument("place_in_nucleus: token " + std::to_string(token.id) + " has no row");
  }
  const VocabularyBounds* const bounds = vocabulary_bounds();
  if (bounds == nullptr) return std::nullopt;
  return bounds->do_place_in_nucleus(on_rows(query, workspace), of_row, nucleus, workspace);
}

TOPKSOFTMAX_INLINE std::optional<LogitDeviation> TopKSoftmax::logit_deviation(std::span<const float> h,
                                                                              const QueryOptions& options,
                                                                              Workspace& workspace) const {
  const Query query = check_one(h, options);
  if (count_allowed(options.allowed) == 0)
    throw std::invalid_argument("logit_deviation: no token is allowed");
  const VocabularyBounds* const bounds = vocabulary_bounds();
  if (bounds == nullptr) return std::nullopt;
  return bounds->do_logit_deviation(on_rows(query, workspace), workspace);
}

}  // namespace TOPKSOFTMAX_NAMESPACE
