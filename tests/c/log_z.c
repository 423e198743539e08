/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "tests.h"

enum { kQueries = 100, kWords = (kVocab + 63) / 64 };

/* log Z of one context over the allowed tokens, by plain loops in double precision. */
static double reference(const problem* p, const float* h, const uint64_t* allowed, double temperature) {
  double sum = 0.0;
  for (size_t i = 0; i < kVocab; ++i) {
    if (allowed != NULL && (allowed[i / 64] >> (i % 64) & 1) == 0) continue;
    double logit = (double)p->b[i];
    for (size_t j = 0; j < kDim; ++j) logit += (double)p->W[i * kDim + j] * (double)h[j];
    sum += exp(logit / temperature);
  }
  return log(sum);
}

void test_log_z(void) {
  problem p = make_problem();
  topk_backend* const backend = build(&p, "certified", NULL);
  uint64_t odd[kWords];
  memset(odd, 0xAA, sizeof odd);
  topk_query_options options = TOPK_QUERY_OPTIONS_INIT;
  options.allowed_words = kWords;
  topk_log_z_options how = TOPK_LOG_Z_OPTIONS_INIT;
  how.error = 0.02;
  for (int masked = 0; masked < 2; ++masked) {
    options.allowed = masked ? odd : NULL;
    options.allowed_words = masked ? kWords : 0;
    how.temperature = masked ? 0.7 : 1.0;
    size_t off = 0;
    size_t read = 0;
    for (size_t q = 0; q < kQueries; ++q) {
      const float* const h = p.contexts + q * kDim;
      how.seed = q;
      topk_sampled_log_z found = TOPK_SAMPLED_LOG_Z_INIT;
      topk_error error;
      CHECK_OK(topk_sample_log_z(backend, h, kDim, &how, &options, p.workspace, &found, &error), error);
      CHECK(found.known == 1 && found.error <= how.error);
      off += fabs(found.log_z - reference(&p, h, options.allowed, how.temperature)) > how.error;
      read += found.rows_read;
    }
    CHECK(off <= 2); /* 0.1 of them is expected, and three come by chance in one of 6,000 */
    CHECK(read > 0 && read <= (size_t)kVocab * kQueries);
  }
  topk_backend_free(backend);
  free_problem(&p);
}

void test_log_z_errors(void) {
  problem p = make_problem();
  topk_backend* const backend = build(&p, "certified", NULL);
  topk_backend* const without_bounds = build(&p, "fused", NULL);
  topk_log_z_options how = TOPK_LOG_Z_OPTIONS_INIT;
  topk_sampled_log_z found = TOPK_SAMPLED_LOG_Z_INIT;
  topk_error error;
  found.known = 1;
  CHECK_OK(topk_sample_log_z(without_bounds, p.contexts, kDim, NULL, NULL, p.workspace, &found, &error),
           error);
  CHECK(found.known == 0);

  found.known = 77;
#define SAMPLE() topk_sample_log_z(backend, p.contexts, kDim, &how, NULL, p.workspace, &found, &error)
  how.error = 0.0;
  CHECK_FAILS(SAMPLE(), error, TOPK_INVALID_ARGUMENT, "above 0");
  how.error = 0.01;
  how.temperature = 0.0;
  CHECK_FAILS(SAMPLE(), error, TOPK_INVALID_ARGUMENT, "temperature");
  how.temperature = 1.0;
  how.struct_size = sizeof how + 8;
  CHECK_FAILS(SAMPLE(), error, TOPK_INVALID_ARGUMENT, "how: struct_size");
  how.struct_size = sizeof how;
  found.struct_size = 0;
  CHECK_FAILS(SAMPLE(), error, TOPK_INVALID_ARGUMENT, "found: struct_size");
  found.struct_size = sizeof found;
#undef SAMPLE
  CHECK_FAILS(topk_sample_log_z(backend, p.contexts, kDim, &how, NULL, p.workspace, NULL, &error), error,
              TOPK_INVALID_ARGUMENT, "found");
  CHECK_FAILS(topk_sample_log_z(backend, p.contexts, kDim - 1, &how, NULL, p.workspace, &found, &error),
              error, TOPK_INVALID_ARGUMENT, "23 values");
  CHECK(found.known == 77);
  topk_backend_free(without_bounds);
  topk_backend_free(backend);
  free_problem(&p);
}
