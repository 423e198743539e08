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
#include <string_view>
#include <utility>
#include <vector>

#include "topksoftmax/candidates.hpp"
#include "topksoftmax/candidates_edited.hpp"
#include "topksoftmax/check_query.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/exhaustive.hpp"
#include "topksoftmax/flat_answers.hpp"
#include "topksoftmax/index/index_writer.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/kernels/logit_edits.hpp"
#include "topksoftmax/numeric/number_text.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"
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

/// Contexts that one thread answers together: enough for a batch kernel to read the weights seldom.
inline constexpr std::size_t kLargestChunk = 256;

/// Up to so many contexts for each thread the threads read for all of them together: half of what meets an
/// index in one pass (kernels::kPrefixBatch).
inline constexpr std::size_t kContextsOfThread = 4;

/// Answers on their way into flat memory.
struct ChunkAnswers {
  std::vector<TopK> found;
};

/// Memory for so many of them.
inline TopK* chunk_answers(Workspace& workspace, std::size_t count) {
  auto& chunk = workspace.scratch<ChunkAnswers>().found;
  if (chunk.size() < count) chunk.resize(count);
  return chunk.data();
}

/// Answers of a batch whose ids are still numbers of rows.
struct RowAnswers {
  std::vector<TopK> found;
};

/// Queries with options of their own, checked.
struct QueriesOfBatch {
  std::vector<Query> queries;
};

/// All logits, for callers that ask for them.
struct LogitsScratch {
  ScratchBuffer values;
  ScratchBuffer of_rows;
};

/// The ids of candidates, where they are not the numbers of their rows.
struct NamedCandidates {
  ScratchBuffer ids;
};

/// The rows of tokens that are bounded.
struct RowsOfTokens {
  ScratchBuffer rows;
};

/// Up to this many allowed tokens are simply scored: no index is faster, and the answer is exact.
inline std::size_t few(std::size_t vocab) {
  return std::max<std::size_t>(64, vocab / 32);
}

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

/// Calls body(first, count, thread) for chunks of a batch, on as many threads as there are workspaces. For the
/// whole of it, with a crew of all threads, where these gain more from dividing what is read; and where others
/// answer it too, even if it is nothing.
template <class Body>
void TopKSoftmax::for_each_chunk(const Executor& executor, std::span<Workspace> workspaces, std::size_t batch,
                                 const Body& body) const {
  const std::size_t threads = std::min(workspaces.size(), executor.threads());
  const bool is_small = batch <= std::min(detail::kContextsOfThread * threads, detail::kLargestChunk);
  const bool reads_much = shared_bytes() > std::max(kernels::kPartBytes, 2 * executor.grain());
  if (collective() || batch == 1 || (threads > 1 && is_small && reads_much)) {
    const detail::LentCrew crew(workspaces[0], {&executor, threads, workspaces.data()});
    return body(std::size_t{0}, batch, std::size_t{0});
  }
  if (batch == 0) return;
  const std::size_t share = (batch + threads - 1) / threads;
  const std::size_t together = answered_together();
  for_each_part_on(executor, threads, batch,
                   together != 0 ? together : std::min(share, detail::kLargestChunk), body);
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
  if (allowed > detail::few(rows_) && allowed > query.k) return std::nullopt;
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

/// Answers queries with options of their own: neighbours together where they may be, the others by
/// themselves, after their masks and biases have been mapped to rows.
TOPKSOFTMAX_INLINE void TopKSoftmax::answer_each(const QueryBatch& batch, Workspace& workspace,
                                                 TopK* answers) const {
  const auto may_share = [this](const Query& query) { return !row_map_ && !few_allowed(query); };
  for (std::size_t first = 0; first < batch.size();) {
    std::size_t end = first;
    while (end < batch.size() && may_share(batch[end])) ++end;
    if (end - first > 1) {
      do_query_batch(batch.part(first, end - first), workspace, answers + first);
    } else {
      end = first + 1;
      const Query query = on_rows(batch[first], workspace);
      answer_chunk(QueryBatch(query), workspace, answers + first);
    }
    first = end;
  }
}

TOPKSOFTMAX_INLINE void TopKSoftmax::query(std::span<const float> h, const QueryOptions& options,
                                           Workspace& workspace, TopK& answer) const {
  const Query query = admit([&] { return on_rows(check_one(h, options), workspace); });
  answer_chunk(QueryBatch(query), workspace, &answer);
}

TOPKSOFTMAX_INLINE void TopKSoftmax::query(std::span<const float> h, const QueryOptions& options,
                                           std::span<Workspace> workspaces, TopK& answer,
                                           const Executor& executor) const {
  admit([&] {
    if (!workspaces.empty()) return;
    throw std::invalid_argument("query: there is no workspace; one a thread is needed");
  });
  const detail::LentCrew crew(workspaces[0], {&executor, std::min(workspaces.size(), executor.threads())});
  query(h, options, workspaces[0], answer);
}

TOPKSOFTMAX_INLINE Query TopKSoftmax::check_batch(const float* H, std::size_t batch, std::size_t dim,
                                                  std::size_t stride, const QueryOptions& options,
                                                  std::span<Workspace> workspaces) const {
  if (workspaces.empty()) {
    throw std::invalid_argument("query_batch: there is no workspace; one a thread is needed");
  }
  if (batch == 0) return {};
  const Query query = check(H, dim, options);
  for (std::size_t q = 0; q < batch; ++q) detail::check_context(H + q * stride, dim);
  return on_rows(query, workspaces[0]);  // once, for all threads
}

TOPKSOFTMAX_INLINE void TopKSoftmax::query_batch(const float* H, std::size_t batch, std::size_t dim,
                                                 std::size_t stride, const QueryOptions& options,
                                                 std::span<Workspace> workspaces, std::span<TopK> answers,
                                                 const Executor& executor) const {
  const Query query = admit([&] {
    if (batch != answers.size()) {
      throw std::invalid_argument("query_batch: there are " + std::to_string(batch) + " contexts and " +
                                  std::to_string(answers.size()) + " answers; they must be as many");
    }
    return check_batch(H, batch, dim, stride, options, workspaces);
  });
  for_each_chunk(executor, workspaces, batch,
                 [&](std::size_t first, std::size_t count, std::size_t thread) {
                   Query part = query;
                   part.h = H + first * stride;
                   answer_chunk({part, stride, count}, workspaces[thread], answers.data() + first);
                 });
}

TOPKSOFTMAX_INLINE std::vector<TopK> TopKSoftmax::query_batch(const float* H, std::size_t batch,
                                                              std::size_t dim, std::size_t stride,
                                                              const QueryOptions& options,
                                                              const Executor& executor) const {
  auto [answers, workspaces] =
      admit([&] { return std::pair(std::vector<TopK>(batch), std::vector<Workspace>(executor.threads())); });
  query_batch(H, batch, dim, stride, options, workspaces, answers, executor);
  return answers;
}

TOPKSOFTMAX_INLINE void TopKSoftmax::query_batch(const float* H, std::size_t batch, std::size_t dim,
                                                 std::size_t stride, const QueryOptions& options,
                                                 std::span<Workspace> workspaces, const FlatAnswers& answers,
                                                 const Executor& executor) const {
  const Query query = admit([&] { return check_batch(H, batch, dim, stride, options, workspaces); });
  for_each_chunk(
      executor, workspaces, batch, [&](std::size_t first, std::size_t count, std::size_t thread) {
        Query part = query;
        part.h = H + first * stride;
        TopK* const found = admit([&] { return detail::chunk_answers(workspaces[thread], count); });
        answer_chunk({part, stride, count}, workspaces[thread], found);
        for (std::size_t q = 0; q < count; ++q) answers.store(first + q, options.k, found[q]);
      });
}

/// The queries, in the first workspace until it is used for others. Of rows, unless these are mapped: then
/// each must be when it is asked, in the memory that there is for one.
TOPKSOFTMAX_INLINE std::span<const Query> TopKSoftmax::check_each(const Contexts& contexts,
                                                                  std::span<const QueryOptions> options,
                                                                  std::span<Workspace> workspaces) const {
  if (workspaces.empty()) {
    throw std::invalid_argument("query_each: there is no workspace; one a thread is needed");
  }
  if (contexts.count != options.size()) {
    throw std::invalid_argument("query_each: there are " + std::to_string(contexts.count) + " contexts and " +
                                std::to_string(options.size()) + " options; they must be as many");
  }
  auto& queries = workspaces[0].scratch<detail::QueriesOfBatch>().queries;
  queries.resize(options.size());
  for (std::size_t q = 0; q < options.size(); ++q) {
    try {
      const Query query = check_one({contexts.row(q), contexts.dim}, options[q]);
      queries[q] = row_map_ ? query : on_rows(query, workspaces[0]);
    } catch (const std::invalid_argument& problem) {
      throw std::invalid_argument("query_each: context " + std::to_string(q) + ": " + problem.what());
    }
  }
  return queries;
}

TOPKSOFTMAX_INLINE void TopKSoftmax::query_each(const Contexts& contexts,
                                                std::span<const QueryOptions> options,
                                                std::span<Workspace> workspaces, std::span<TopK> answers,
                                                const Executor& executor) const {
  const std::span<const Query> queries = admit([&] {
    if (contexts.count != answers.size()) {
      throw std::invalid_argument("query_each: there are " + std::to_string(contexts.count) +
                                  " contexts and " + std::to_string(answers.size()) +
                                  " answers; they must be as many");
    }
    return check_each(contexts, options, workspaces);
  });
  if (queries.empty()) {  // which others may have to be told
    return query_batch(contexts.data, 0, contexts.dim, contexts.stride, {}, workspaces, answers, executor);
  }
  const QueryBatch batch(queries, contexts.stride);
  for_each_chunk(executor, workspaces, batch.size(),
                 [&](std::size_t first, std::size_t count, std::size_t thread) {
                   answer_each(batch.part(first, count), workspaces[thread], answers.data() + first);
                 });
}

TOPKSOFTMAX_INLINE std::vector<TopK> TopKSoftmax::query_each(const Contexts& contexts,
                                                             std::span<const QueryOptions> options,
                                                             const Executor& executor) const {
  auto [answers, workspaces] = admit([&] {
    return std::pair(std::vector<TopK>(contexts.count), std::vector<Workspace>(executor.threads()));
  });
  query_each(contexts, options, workspaces, answers, executor);
  return std::move(answers);
}

TOPKSOFTMAX_INLINE void TopKSoftmax::query_each(const Contexts& contexts,
                                                std::span<const QueryOptions> options,
                                                std::span<Workspace> workspaces, const FlatAnswers& answers,
                                                const Executor& executor) const {
  const std::span<const Query> queries = admit([&] { return check_each(contexts, options, workspaces); });
  if (queries.empty()) {
    return query_batch(contexts.data, 0, contexts.dim, contexts.stride, {}, workspaces, answers, executor);
  }
  const QueryBatch batch(queries, contexts.stride);
  const std::size_t places = std::ranges::max(options, {}, &QueryOptions::k).k;
  for_each_chunk(executor, workspaces, batch.size(),
                 [&](std::size_t first, std::size_t count, std::size_t thread) {
                   TopK* const found =
                       admit([&] { return detail::chunk_answers(workspaces[thread], count); });
                   answer_each(batch.part(first, count), workspaces[thread], found);
                   for (std::size_t q = 0; q < count; ++q) answers.store(first + q, places, found[q]);
                 });
}

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
  score_all(layer_, batch, workspace, logits);
}

TOPKSOFTMAX_INLINE void TopKSoftmax::do_logits_of(const float* h, std::span<const TokenId> rows,
                                                  const Workspace& workspace, std::span<float> logits) const {
  scan_gathered(workspace, layer_.rows(), rows.data(), rows.size(), h, logits.data());
}

}  // namespace TOPKSOFTMAX_NAMESPACE
