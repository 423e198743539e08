// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "c/executor.hpp"
#include "c/guard.hpp"
#include "c/handles.hpp"
#include "topksoftmax/c/topksoftmax.h"
#include "topksoftmax/check_query.hpp"
#include "topksoftmax/decoding/token_cursor.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"

using namespace topksoftmax;

struct topk_cursor {
  topk_cursor(const topk_backend& asked, std::span<const float> context, const topk_query_options* options)
      : backend(asked.backend),
        h(context.begin(), context.end()),
        cursor(*backend, h, c::options_of(options, biases)) {}

  /// Begins again. Where it throws, nothing has changed, or the next token is one of the new query's.
  void start(std::span<const float> context, const topk_query_options* options) {
    std::vector<float> other_h(context.begin(), context.end());
    std::vector<TokenBias> other_biases;
    const QueryOptions query = c::options_of(options, other_biases);
    h.swap(other_h);
    biases.swap(other_biases);
    cursor.start(h, query);
  }

  std::shared_ptr<const TopKSoftmax> backend;
  std::vector<float> h;
  std::vector<TokenBias> biases;
  c::LentThreads threads;
  TokenCursor cursor;  ///< over all of these
};

namespace {

/// The context h [dim], which is looked at before it is copied.
std::span<const float> context_of(const TopKSoftmax& backend, const float* h, size_t dim) {
  c::required(h, "h");
  topksoftmax::detail::check_dimension(dim, backend.layer());
  return {h, dim};
}

}  // namespace

topk_status topk_cursor_new(const topk_backend* backend, const float* h, size_t dim,
                            const topk_query_options* options, topk_cursor** cursor, topk_error* error) {
  return c::guarded(error, [&] {
    const topk_backend& asked = c::required(backend, "backend");
    const std::span<const float> context = context_of(*asked.backend, h, dim);
    c::required(cursor, "cursor");
    *cursor = new topk_cursor(asked, context, options);
  });
}

topk_status topk_cursor_start(topk_cursor* cursor, const float* h, size_t dim,
                              const topk_query_options* options, topk_error* error) {
  return c::guarded(error, [&] {
    c::required(cursor, "cursor");
    cursor->start(context_of(*cursor->backend, h, dim), options);
  });
}

void topk_cursor_free(topk_cursor* cursor) {
  delete cursor;
}

topk_status topk_cursor_lend_threads(topk_cursor* cursor, size_t threads, const topk_executor* executor,
                                     topk_error* error) {
  return c::guarded(error, [&] {
    c::required(cursor, "cursor");
    cursor->threads = c::LentThreads(threads, executor);
    cursor->cursor.lend_threads(cursor->threads);
  });
}

topk_status topk_cursor_next(topk_cursor* cursor, int32_t* id, float* logit, topk_error* error) {
  return c::guarded(error, [&] {
    c::required(cursor, "cursor");
    c::required(id, "id");
    const std::optional<ScoredToken> token = cursor->cursor.next();
    *id = token ? token->id : -1;
    if (logit != nullptr) *logit = token ? token->logit : -std::numeric_limits<float>::infinity();
  });
}

int topk_cursor_certified(const topk_cursor* cursor) {
  return cursor != nullptr && cursor->cursor.certified() ? 1 : 0;
}
