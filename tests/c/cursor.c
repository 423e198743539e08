/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h"

enum { kWords = (kVocab + 63) / 64 };

void test_cursor(void) {
  problem p = make_problem();
  topk_error error;
  topk_backend* backend = build(&p, "certified", NULL);
  const topk_token_bias bias = {50, 3.0F};
  uint64_t allowed[kWords] = {0};
  for (size_t t = 0; t < kVocab; t += 2) allowed[t / 64] |= (uint64_t)1 << t % 64;
  topk_query_options options = TOPK_QUERY_OPTIONS_INIT;
  options.allowed = allowed;
  options.allowed_words = kWords;
  options.biases = &bias;
  options.bias_count = 1;
  options.k = kVocab;
  static int32_t ids[kVocab];
  static float logits[kVocab];
  topk_answer answer = TOPK_ANSWER_INIT;
  CHECK_OK(topk_query(backend, p.contexts, kDim, &options, p.workspace, ids, logits, &answer, &error), error);
  CHECK(answer.count == kVocab / 2);

  /* All that it needs but the mask is its own. */
  topk_cursor* cursor = NULL;
  float h[kDim];
  memcpy(h, p.contexts, sizeof h);
  topk_token_bias passing = bias;
  options.biases = &passing;
  CHECK_OK(topk_cursor_new(backend, h, kDim, &options, &cursor, &error), error);
  topk_backend* const other_backend = build(&p, "fused", NULL);
  topk_backend_free(backend);
  memset(h, 0xFF, sizeof h);
  passing.id = -5;
  CHECK(topk_cursor_certified(cursor) == 1);
  int32_t id = 77;
  float logit = 77.0F;
  for (size_t i = 0; i < answer.count; ++i) {
    CHECK_OK(topk_cursor_next(cursor, &id, i % 2 == 0 ? &logit : NULL, &error), error);
    CHECK(id == ids[i] && (i % 2 != 0 || logit == logits[i]));
  }
  CHECK(topk_cursor_certified(cursor) == 1);
  for (size_t i = 0; i < 2; ++i) {
    CHECK_OK(topk_cursor_next(cursor, &id, &logit, &error), error);
    CHECK(id == -1 && logit == -HUGE_VALF);
  }

  /* Begun again, without the mask and the bias. */
  const float* const other = p.contexts + kDim;
  options = (topk_query_options)TOPK_QUERY_OPTIONS_INIT;
  options.k = kVocab;
  CHECK_OK(topk_query(other_backend, other, kDim, &options, p.workspace, ids, logits, &answer, &error),
           error);
  CHECK_OK(topk_cursor_start(cursor, other, kDim, NULL, &error), error);
  for (size_t i = 0; i < answer.count; ++i) {
    CHECK_OK(topk_cursor_next(cursor, &id, &logit, &error), error);
    CHECK(id == ids[i] && logit == logits[i]);
  }
  topk_backend_free(other_backend);
  topk_cursor_free(cursor);
  topk_cursor_free(NULL);
  CHECK(topk_cursor_certified(NULL) == 0);

  /* What an approximate backend finds is not proven. */
  topk_backend* const approximate = build(&p, "l2s", "clusters=8 budget=150");
  CHECK_OK(topk_cursor_new(approximate, p.contexts, kDim, NULL, &cursor, &error), error);
  CHECK_OK(topk_cursor_next(cursor, &id, NULL, &error), error);
  CHECK(topk_cursor_certified(cursor) == 0);
  topk_cursor_free(cursor);
  topk_backend_free(approximate);
  free_problem(&p);
}

void test_cursor_errors(void) {
  problem p = make_problem();
  topk_error error;
  topk_backend* const backend = build(&p, "fused", NULL);
  topk_cursor* cursor = NULL;
  CHECK_FAILS(topk_cursor_new(NULL, p.contexts, kDim, NULL, &cursor, &error), error, TOPK_INVALID_ARGUMENT,
              "backend");
  CHECK_FAILS(topk_cursor_new(backend, NULL, kDim, NULL, &cursor, &error), error, TOPK_INVALID_ARGUMENT, "h");
  /* Nothing behind a context is read, which sanitizers see. */
  float* const alone = malloc(kDim * sizeof *alone);
  memcpy(alone, p.contexts, kDim * sizeof *alone);
  CHECK_FAILS(topk_cursor_new(backend, alone, kDim + 1, NULL, &cursor, &error), error, TOPK_INVALID_ARGUMENT,
              "25 values");
  CHECK_FAILS(topk_cursor_new(backend, alone, SIZE_MAX / 4, NULL, &cursor, &error), error,
              TOPK_INVALID_ARGUMENT, "h has");
  free(alone);
  CHECK_FAILS(topk_cursor_new(backend, p.contexts, kDim, NULL, NULL, &error), error, TOPK_INVALID_ARGUMENT,
              "cursor");
  CHECK(cursor == NULL);
  int32_t id = 77;
  CHECK_FAILS(topk_cursor_next(NULL, &id, NULL, &error), error, TOPK_INVALID_ARGUMENT, "cursor");
  CHECK_OK(topk_cursor_new(backend, p.contexts, kDim, NULL, &cursor, &error), error);
  CHECK_FAILS(topk_cursor_next(cursor, NULL, NULL, &error), error, TOPK_INVALID_ARGUMENT, "id");
  CHECK(id == 77);
  CHECK_FAILS(topk_cursor_start(NULL, p.contexts, kDim, NULL, &error), error, TOPK_INVALID_ARGUMENT,
              "cursor");
  CHECK_FAILS(topk_cursor_start(cursor, NULL, kDim, NULL, &error), error, TOPK_INVALID_ARGUMENT, "h");
  CHECK_FAILS(topk_cursor_start(cursor, p.contexts, kDim - 1, NULL, &error), error, TOPK_INVALID_ARGUMENT,
              "23 values");
  CHECK_OK(topk_cursor_next(cursor, &id, NULL, &error), error);
  CHECK(id >= 0);
  topk_cursor_free(cursor);
  topk_backend_free(backend);
  free_problem(&p);
}
