// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "topksoftmax/check_query.hpp"
#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/flat_answers.hpp"
#include "topksoftmax/kernels/constants.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"
#include "topksoftmax/query.hpp"
#include "topksoftmax/query_batch.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/vocabulary_bounds.hpp"
#include "topksoftmax/workspace.hpp"

// What TopKSoftmax does with many contexts.
namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Contexts that one thread answers together: enough for a batch kernel to read the weights seldom.
inline constexpr std::size_t kLargestChunk = 256;

/// Up to so many contexts for each thread the threads read for all of them together: half of what meets an
/// index in one pass (kernels::kPrefixBatch). But no more than this in all, so that their logits for all
/// tokens, which Fused writes then, are a part of what it reads.
inline constexpr std::size_t kContextsOfThread = 4;
inline constexpr std::size_t kMostTogether = 64;

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

/// Queries with options of their own, checked.
struct QueriesOfBatch {
  std::vector<Query> queries;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

/// Calls body(first, count, thread) for chunks of a batch, on as many threads as there are workspaces. For
/// the whole of it, with a crew of all threads, where these gain more from dividing what is read; and where
/// others answer it too, even if it is nothing.
template <class Body>
void TopKSoftmax::for_each_chunk(const Executor& executor, std::span<Workspace> workspaces, std::size_t batch,
                                 const Body& body) const {
  const std::size_t threads = std::min(workspaces.size(), executor.threads());
  const bool is_small = batch <= std::min(detail::kContextsOfThread * threads, detail::kMostTogether);
  const bool reads_much = shared_bytes() > std::max(kernels::kPartBytes, 2 * executor.grain());
  if (collective() || batch == 1 || (threads > 1 && is_small && reads_much)) {
    const detail::LentCrew crew(workspaces, executor);
    return body(std::size_t{0}, batch, std::size_t{0});
  }
  if (batch == 0) return;
  const std::size_t share = (batch + threads - 1) / threads;
  const std::size_t together = answered_together();
  for_each_part_on(executor, threads, batch,
                   together != 0 ? together : std::min(share, detail::kLargestChunk), body);
}

/// Answers queries of a batch: those with the same options as one; of others neighbours together where they
/// may be, and the rest by themselves, after their masks and biases have been mapped to rows.
TOPKSOFTMAX_INLINE void TopKSoftmax::answer_part(const QueryBatch& batch, Workspace& workspace,
                                                 TopK* answers) const {
  if (batch.same_options()) return answer_chunk(batch, workspace, answers);
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

TOPKSOFTMAX_INLINE void TopKSoftmax::answer_all(const QueryBatch& batch, std::span<Workspace> workspaces,
                                                TopK* answers, const Executor& executor) const {
  for_each_chunk(executor, workspaces, batch.size(),
                 [&](std::size_t first, std::size_t count, std::size_t thread) {
                   answer_part(batch.part(first, count), workspaces[thread], answers + first);
                 });
}

/// The same into flat memory, with so many places for every answer.
TOPKSOFTMAX_INLINE void TopKSoftmax::answer_all(const QueryBatch& batch, std::span<Workspace> workspaces,
                                                const FlatAnswers& answers, std::size_t places,
                                                const Executor& executor) const {
  for_each_chunk(
      executor, workspaces, batch.size(), [&](std::size_t first, std::size_t count, std::size_t thread) {
        TopK* const found = admit([&] { return detail::chunk_answers(workspaces[thread], count); });
        answer_part(batch.part(first, count), workspaces[thread], found);
        for (std::size_t q = 0; q < count; ++q) answers.store(first + q, places, found[q]);
      });
}

TOPKSOFTMAX_INLINE Query TopKSoftmax::check_batch(const float* H, std::size_t batch, std::size_t dim,
                                                  std::size_t stride, const QueryOptions& options,
                                                  std::span<Workspace> workspaces) const {
  detail::check_workspaces("query_batch", workspaces);
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
    detail::check_as_many("query_batch", batch, answers.size(), "answers");
    return check_batch(H, batch, dim, stride, options, workspaces);
  });
  answer_all({query, stride, batch}, workspaces, answers.data(), executor);
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
  answer_all({query, stride, batch}, workspaces, answers, options.k, executor);
}

/// The queries, in the first workspace until it is used for others. Of rows, unless these are mapped: then
/// each must be when it is asked, in the memory that there is for one.
TOPKSOFTMAX_INLINE std::span<Query> TopKSoftmax::check_each(const char* asked, const Contexts& contexts,
                                                            std::span<const QueryOptions> options,
                                                            std::span<Workspace> workspaces) const {
  detail::check_workspaces(asked, workspaces);
  detail::check_as_many(asked, contexts.count, options.size(), "options");
  auto& queries = workspaces[0].scratch<detail::QueriesOfBatch>().queries;
  queries.resize(options.size());
  for (std::size_t q = 0; q < options.size(); ++q) {
    detail::naming_context(asked, q, [&] {
      const Query query = check_one({contexts.row(q), contexts.dim}, options[q]);
      queries[q] = row_map_ ? query : on_rows(query, workspaces[0]);
    });
  }
  return queries;
}

TOPKSOFTMAX_INLINE void TopKSoftmax::query_each(const Contexts& contexts,
                                                std::span<const QueryOptions> options,
                                                std::span<Workspace> workspaces, std::span<TopK> answers,
                                                const Executor& executor) const {
  const std::span<const Query> queries = admit([&] {
    detail::check_as_many("query_each", contexts.count, answers.size(), "answers");
    return check_each("query_each", contexts, options, workspaces);
  });
  if (queries.empty()) {  // which others may have to be told
    return query_batch(contexts.data, 0, contexts.dim, contexts.stride, {}, workspaces, answers, executor);
  }
  answer_all({queries, contexts.stride}, workspaces, answers.data(), executor);
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
  const std::span<const Query> queries =
      admit([&] { return check_each("query_each", contexts, options, workspaces); });
  if (queries.empty()) {
    return query_batch(contexts.data, 0, contexts.dim, contexts.stride, {}, workspaces, answers, executor);
  }
  const std::size_t places = std::ranges::max(options, {}, &QueryOptions::k).k;
  answer_all({queries, contexts.stride}, workspaces, answers, places, executor);
}

TOPKSOFTMAX_INLINE void TopKSoftmax::bound_each(const Contexts& contexts,
                                                std::span<const QueryOptions> options,
                                                std::span<Workspace* const> own,
                                                std::span<Workspace> workspaces,
                                                const Executor& executor) const {
  detail::check_as_many("bound_each", contexts.count, own.size(), "workspaces of their own");
  const std::span<Query> queries = check_each("bound_each", contexts, options, workspaces);
  const VocabularyBounds* const bounds = vocabulary_bounds();
  if (queries.empty() || bounds == nullptr) return;
  if (row_map_) {
    for (std::size_t q = 0; q < queries.size(); ++q) queries[q] = on_rows(queries[q], *own[q]);
  }
  const detail::LentCrew crew(workspaces, executor);
  bounds->do_bound_each({queries, contexts.stride}, own, workspaces[0]);
}

}  // namespace TOPKSOFTMAX_NAMESPACE
