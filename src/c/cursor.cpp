// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

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

  std::shared_ptr<const TopKSoftmax> backend;
  std::vector<float> h;
  std::vector<TokenBias> biases;
  TokenCursor cursor;  ///< over all of these
};

topk_status topk_cursor_new(const topk_backend* backend, const float* h, size_t dim,
                            const topk_query_options* options, topk_cursor** cursor, topk_error* error) {
  return c::guarded(error, [&] {
    const topk_backend& asked = c::required(backend, "backend");
    c::required(h, "h");
    c::required(cursor, "cursor");
    topksoftmax::detail::check_dimension(dim, asked.backend->layer().dim());  // before h is copied
    *cursor = new topk_cursor(asked, {h, dim}, options);
  });
}

void topk_cursor_free(topk_cursor* cursor) {
  delete cursor;
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
