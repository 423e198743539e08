/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "tests.h"

enum { kHistory = 6 };

static const int32_t history[kHistory] = {9, 599, 9, 17, 9, 0};

/* What the penalties leave of a logit that has been written so often. */
static double penalised(double logit, const topk_penalties* penalties, size_t count) {
  const double repeated = logit > 0.0 ? logit / penalties->repetition : logit * penalties->repetition;
  return repeated - penalties->presence - penalties->frequency * (double)count;
}

void test_penalties(void) {
  problem p = make_problem();
  topk_error error;
  topk_penalties penalties = TOPK_PENALTIES_INIT;
  penalties.repetition = 1.3;
  penalties.presence = 0.5;
  penalties.frequency = 0.25;
  const topk_token_bias given[] = {{1, 0.5F}, {17, 1.5F}};
  topk_query_options options = TOPK_QUERY_OPTIONS_INIT;
  options.biases = given;
  options.bias_count = 2;
  topk_backend* const backend = build(&p, "certified", NULL);
  for (size_t q = 0; q < 20; ++q) {
    const float* const h = p.contexts + q * kDim;
    static float logits[kVocab];
    CHECK_OK(topk_logits(backend, h, 1, kDim, 0, &options, p.workspace, logits, &error), error);
    topk_token_bias biases[kHistory + 2];
    size_t count = 0;
    CHECK_OK(topk_penalise(&penalties, backend, h, kDim, history, kHistory, &options, p.workspace, biases,
                           &count, &error),
             error);
    CHECK(count == 5); /* 0, 1, 9, 17 and 599 */
    topk_query_options with = TOPK_QUERY_OPTIONS_INIT;
    with.biases = biases;
    with.bias_count = count;
    static float found[kVocab];
    CHECK_OK(topk_logits(backend, h, 1, kDim, 0, &with, p.workspace, found, &error), error);
    for (int32_t t = 0; t < kVocab; ++t) {
      size_t written = 0;
      for (size_t i = 0; i < kHistory; ++i) written += history[i] == t;
      const double expected =
          written != 0 ? penalised((double)logits[t], &penalties, written) : (double)logits[t];
      CHECK(fabs((double)found[t] - expected) < 1e-5);
    }
  }

  /* Without penalties, and without a history. */
  topk_token_bias biases[kHistory];
  size_t count = 77;
  CHECK_OK(topk_penalise(NULL, backend, p.contexts, kDim, history, kHistory, NULL, p.workspace, biases,
                         &count, &error),
           error);
  CHECK(count == 4);
  for (size_t i = 0; i < count; ++i) CHECK(biases[i].bias == 0.0F);
  CHECK_OK(
      topk_penalise(&penalties, backend, p.contexts, kDim, NULL, 0, NULL, p.workspace, NULL, &count, &error),
      error);
  CHECK(count == 0);
  topk_backend_free(backend);
  free_problem(&p);
}

void test_penalties_errors(void) {
  problem p = make_problem();
  topk_error error;
  topk_backend* const backend = build(&p, "fused", NULL);
  topk_penalties penalties = TOPK_PENALTIES_INIT;
  topk_token_bias biases[kHistory] = {{77, 0.0F}};
  size_t count = 77;
#define PENALISE(ids, out) \
  topk_penalise(&penalties, backend, p.contexts, kDim, ids, kHistory, NULL, p.workspace, out, &count, &error)
  penalties.repetition = 0.0;
  CHECK_FAILS(PENALISE(history, biases), error, TOPK_INVALID_ARGUMENT, "repetition is 0");
  penalties.repetition = 1.0;
  penalties.presence = NAN;
  CHECK_FAILS(PENALISE(history, biases), error, TOPK_INVALID_ARGUMENT, "presence is NaN");
  penalties.presence = 0.0;
  CHECK_FAILS(PENALISE(NULL, biases), error, TOPK_INVALID_ARGUMENT, "history");
  CHECK_FAILS(PENALISE(history, NULL), error, TOPK_INVALID_ARGUMENT, "biases");
  const int32_t none[kHistory] = {1, 2, 3, 4, 5, kVocab};
  CHECK_FAILS(PENALISE(none, biases), error, TOPK_INVALID_ARGUMENT, "600");
  penalties.struct_size = sizeof penalties + 8;
  CHECK_FAILS(PENALISE(history, biases), error, TOPK_INVALID_ARGUMENT, "struct_size");
#undef PENALISE
  CHECK(count == 77 && biases[0].id == 77);
  topk_backend_free(backend);
  free_problem(&p);
}
