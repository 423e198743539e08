// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "c/batches.hpp"
#include "c/guard.hpp"
#include "c/handles.hpp"
#include "c/workspace.hpp"
#include "topksoftmax/allowed_tokens.hpp"
#include "topksoftmax/c/topksoftmax.h"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/flat_answers.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"

using namespace topksoftmax;

namespace {

topk_answer described(const TopK& top) {
  topk_answer answer = TOPK_ANSWER_INIT;
  answer.count = top.size();
  answer.log_z = top.log_z;
  answer.log_z_low = top.log_z_low;
  answer.log_z_high = top.log_z_high;
  answer.normalizer = static_cast<int>(top.normalizer);
  answer.certified = top.certified ? 1 : 0;
  answer.bytes_read = top.work.bytes_read;
  answer.screened = top.work.screened;
  answer.candidates = top.work.candidates;
  answer.fell_back = top.work.fell_back ? 1 : 0;
  answer.repaired = top.work.repaired ? 1 : 0;
  answer.confidence = top.confidence;
  return answer;
}

static_assert(static_cast<int>(Normalizer::none) == TOPK_NORMALIZER_NONE);
static_assert(static_cast<int>(Normalizer::exact) == TOPK_NORMALIZER_EXACT);
static_assert(static_cast<int>(Normalizer::candidates) == TOPK_NORMALIZER_CANDIDATES);
static_assert(static_cast<int>(Normalizer::low_rank) == TOPK_NORMALIZER_LOW_RANK);
static_assert(static_cast<int>(Normalizer::interval) == TOPK_NORMALIZER_INTERVAL);
static_assert(static_cast<int>(Normalizer::learned) == TOPK_NORMALIZER_LEARNED);

/// Where answers go. Throws std::invalid_argument for answers of contexts that have no ids.
FlatAnswers flat_answers(const topk_flat_answers* given, std::size_t batch) {
  c::required(given, "answers");
  const topk_flat_answers out = c::known(given, TOPK_FLAT_ANSWERS_INIT, "answers");
  if (batch != 0) c::required(out.ids, "answers.ids");
  return {.ids = out.ids, .logits = out.logits, .log_z = out.log_z, .certified = out.certified};
}

}  // namespace

QueryOptions c::options_of(const topk_query_options* given, std::vector<TokenBias>& biases) {
  const topk_query_options known_options = known(given, TOPK_QUERY_OPTIONS_INIT, "options");
  require_values(known_options.allowed, known_options.allowed_words, "options.allowed");
  require_values(known_options.allowed32, known_options.allowed32_words, "options.allowed32");
  if (known_options.allowed != nullptr && known_options.allowed32 != nullptr) {
    throw std::invalid_argument(
        "options.allowed and options.allowed32 are both given; a mask has words of 64 bits or of 32");
  }
  require_values(known_options.biases, known_options.bias_count, "options.biases");
  biases.clear();
  for (std::size_t i = 0; i < known_options.bias_count; ++i) {
    biases.push_back({known_options.biases[i].id, known_options.biases[i].bias});
  }
  return {.k = known_options.k,
          .allowed = known_options.allowed32 != nullptr
                         ? AllowedTokens(known_options.allowed32, known_options.allowed32_words)
                         : AllowedTokens(known_options.allowed, known_options.allowed_words),
          .logit_bias = biases,
          .probabilities = known_options.probabilities != 0,
          .effort = known_options.effort,
          .log_z_tolerance = known_options.log_z_tolerance};
}

topk_status topk_query(const topk_backend* backend, const float* h, size_t dim,
                       const topk_query_options* options, topk_workspace* workspace, int32_t* ids,
                       float* logits, topk_answer* answer, topk_error* error) {
  return c::guarded(error, [&] {
    const TopKSoftmax& asked = *c::required(backend, "backend").backend;
    topk_workspace& memory = c::required(workspace, "workspace");
    c::required(h, "h");
    c::required(ids, "ids");
    if (answer != nullptr) c::check_size(*answer, "answer");
    const QueryOptions query = c::options_of(options, memory.biases);
    if (memory.workspaces.size() == 1) {
      asked.query({h, dim}, query, memory.workspaces[0], memory.answer);
    } else {
      asked.query({h, dim}, query, memory.workspaces, memory.answer, memory.executor.get());
    }
    FlatAnswers places;
    places.ids = ids;
    places.logits = logits;
    places.store(0, query.k, memory.answer);
    if (answer != nullptr) c::store(described(memory.answer), *answer);
  });
}

topk_status topk_query_batch(const topk_backend* backend, const float* contexts, size_t batch, size_t dim,
                             size_t stride, const topk_query_options* options, topk_workspace* workspace,
                             const topk_flat_answers* answers, topk_error* error) {
  return c::guarded(error, [&] {
    const TopKSoftmax& asked = *c::required(backend, "backend").backend;
    topk_workspace& memory = c::required(workspace, "workspace");
    const FlatAnswers flat = flat_answers(answers, batch);
    const Contexts given = c::contexts_of(contexts, batch, dim, stride);
    asked.query_batch(given.data, given.count, given.dim, given.stride, c::options_of(options, memory.biases),
                      memory.workspaces, flat, memory.executor.get());
  });
}

topk_status topk_query_each(const topk_backend* backend, const float* contexts, size_t batch, size_t dim,
                            size_t stride, const topk_query_options* const* options,
                            topk_workspace* workspace, const topk_flat_answers* answers, topk_error* error) {
  return c::guarded(error, [&] {
    const TopKSoftmax& asked = *c::required(backend, "backend").backend;
    topk_workspace& memory = c::required(workspace, "workspace");
    const FlatAnswers flat = flat_answers(answers, batch);
    const Contexts given = c::contexts_of(contexts, batch, dim, stride);
    if (batch != 0) c::required(options, "options");
    asked.query_each(given, c::options_of_each("query_each", options, batch, memory), memory.workspaces, flat,
                     memory.executor.get());
  });
}

topk_status topk_logits(const topk_backend* backend, const float* contexts, size_t batch, size_t dim,
                        size_t stride, const topk_query_options* options, topk_workspace* workspace,
                        float* logits, topk_error* error) {
  return c::guarded(error, [&] {
    const TopKSoftmax& asked = *c::required(backend, "backend").backend;
    topk_workspace& memory = c::required(workspace, "workspace");
    const Contexts given = c::contexts_of(contexts, batch, dim, stride);
    if (batch == 0) return;
    c::required(logits, "logits");
    const QueryOptions query = c::options_of(options, memory.biases);
    const std::span<const float> found =
        asked.logits_batch(given, query, memory.workspaces, memory.executor.get());
    std::copy(found.begin(), found.end(), logits);
  });
}

topk_status topk_logits_of(const topk_backend* backend, const float* h, size_t dim, const int32_t* ids,
                           size_t count, const topk_query_options* options, topk_workspace* workspace,
                           float* logits, topk_error* error) {
  return c::guarded(error, [&] {
    const TopKSoftmax& asked = *c::required(backend, "backend").backend;
    topk_workspace& memory = c::required(workspace, "workspace");
    c::required(h, "h");
    if (count != 0) {
      c::required(ids, "ids");
      c::required(logits, "logits");
    }
    asked.logits_of({h, dim}, {ids, count}, c::options_of(options, memory.biases), memory.workspaces[0],
                    {logits, count});
  });
}
