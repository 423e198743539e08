/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h"

enum { kK = 6, kWords = (kVocab + 63) / 64 };

/* The full softmax of one context, by plain loops in double precision. */
static double reference(const problem* p, const float* h, double* logits) {
  double sum = 0.0;
  for (size_t i = 0; i < kVocab; ++i) {
    logits[i] = (double)p->b[i];
    for (size_t j = 0; j < kDim; ++j) logits[i] += (double)p->W[i * kDim + j] * (double)h[j];
    sum += exp(logits[i]);
  }
  return log(sum);
}

void test_reference(void) {
  problem p = make_problem();
  topk_backend* const backend = build(&p, "fused", NULL);
  topk_query_options options = TOPK_QUERY_OPTIONS_INIT;
  options.k = kK;
  for (size_t q = 0; q < 50; ++q) {
    const float* const h = p.contexts + q * kDim;
    double expected[kVocab];
    const double log_z = reference(&p, h, expected);
    int32_t ids[kK];
    float logits[kK];
    topk_answer answer = TOPK_ANSWER_INIT;
    topk_error error;
    CHECK_OK(topk_query(backend, h, kDim, &options, p.workspace, ids, logits, &answer, &error), error);
    CHECK(answer.count == kK && answer.certified == 1 && answer.confidence == 1.0 &&
          answer.normalizer == TOPK_NORMALIZER_EXACT);
    CHECK(answer.bytes_read >= sizeof(float) * kVocab * kDim && answer.candidates == kVocab);
    CHECK(fabs(answer.log_z - log_z) < 1e-4 && answer.log_z_low == answer.log_z);
    for (size_t i = 0; i < kK; ++i) {
      size_t before = 0;
      for (size_t t = 0; t < kVocab; ++t) before += expected[t] > expected[ids[i]];
      CHECK(before == i);
      CHECK(fabs(expected[ids[i]] - (double)logits[i]) < 1e-4);
    }
  }
  topk_backend_free(backend);
  free_problem(&p);
}

void test_batch(void) {
  problem p = make_problem();
  topk_error error;
  topk_workspace* threads;
  CHECK_OK(topk_workspace_new(3, NULL, &threads, &error), error);
  static int32_t ids[kContexts * kK];
  static float logits[kContexts * kK];
  static double log_z[kContexts];
  static uint8_t certified[kContexts];
  topk_flat_answers answers = {sizeof answers, ids, logits, log_z, certified};
  topk_query_options options = TOPK_QUERY_OPTIONS_INIT;
  options.k = kK;
  static const char* const kNames[] = {"fused", "certified"};
  for (size_t n = 0; n < 2; ++n) {
    topk_backend* const backend = build(&p, kNames[n], NULL);
    topk_workspace* const workspaces[] = {p.workspace, threads};
    for (size_t w = 0; w < 2; ++w) {
      memset(ids, 0, sizeof ids);
      CHECK_OK(topk_query_batch(backend, p.contexts, kContexts, kDim, 0, &options, workspaces[w], &answers,
                                &error),
               error);
      for (size_t q = 0; q < kContexts; ++q) {
        int32_t id[kK];
        float logit[kK];
        topk_answer answer = TOPK_ANSWER_INIT;
        const float* const h = p.contexts + q * kDim;
        CHECK_OK(topk_query(backend, h, kDim, &options, threads, id, logit, &answer, &error), error);
        CHECK(memcmp(id, ids + q * kK, sizeof id) == 0 && memcmp(logit, logits + q * kK, sizeof logit) == 0);
        CHECK(answer.log_z == log_z[q] && certified[q] == 1);
      }
    }
    topk_backend_free(backend);
  }

  /* Every other context, ids alone; and none at all. */
  topk_backend* const backend = build(&p, "fused", NULL);
  static int32_t alone[kContexts / 2 * kK];
  topk_flat_answers only_ids = {sizeof only_ids, alone, NULL, NULL, NULL};
  CHECK_OK(topk_query_batch(backend, p.contexts, kContexts / 2, kDim, 2 * kDim, &options, threads, &only_ids,
                            &error),
           error);
  for (size_t q = 0; q < kContexts / 2; ++q)
    CHECK(memcmp(alone + q * kK, ids + 2 * q * kK, sizeof(int32_t) * kK) == 0);
  CHECK_OK(topk_query_batch(backend, NULL, 0, kDim, 0, &options, threads, &only_ids, &error), error);

  /* A context that is not finite, at the end: nothing is written. */
  p.contexts[kContexts * kDim - 1] = NAN;
  memset(ids, 7, sizeof ids);
  CHECK_FAILS(topk_query_batch(backend, p.contexts, kContexts, kDim, 0, &options, threads, &answers, &error),
              error, TOPK_INVALID_ARGUMENT, "NaN");
  for (size_t i = 0; i < sizeof ids / sizeof ids[0]; ++i) CHECK(ids[i] == 0x07070707);
  CHECK_FAILS(topk_query_batch(backend, NULL, 1, kDim, 0, &options, threads, &answers, &error), error,
              TOPK_INVALID_ARGUMENT, "contexts");
  CHECK_FAILS(topk_query_batch(backend, p.contexts, 2, kDim, kDim - 1, &options, threads, &answers, &error),
              error, TOPK_INVALID_ARGUMENT, "apart");
  CHECK_FAILS(topk_query_batch(backend, p.contexts, 2, kDim, 0, &options, threads, NULL, &error), error,
              TOPK_INVALID_ARGUMENT, "answers");
  answers.ids = NULL;
  CHECK_FAILS(topk_query_batch(backend, p.contexts, 2, kDim, 0, &options, threads, &answers, &error), error,
              TOPK_INVALID_ARGUMENT, "answers.ids");
  topk_backend_free(backend);
  topk_workspace_free(threads);
  free_problem(&p);
}

/* A server's requests. */
void test_options_of_each(void) {
  problem p = make_problem();
  uint64_t allowed[kWords] = {0};
  for (size_t t = 0; t < kVocab; t += 3) allowed[t / 64] |= (uint64_t)1 << t % 64;
  const uint64_t two[kWords] = {(uint64_t)1 << 5 | (uint64_t)1 << 40};
  const topk_token_bias biases[] = {{0, 2.0F}, {30, -1.5F}, {599, 40.0F}};
  topk_query_options masked = TOPK_QUERY_OPTIONS_INIT;
  masked.k = kK;
  masked.allowed = allowed;
  masked.allowed_words = kWords;
  topk_query_options biased = TOPK_QUERY_OPTIONS_INIT;
  biased.k = 2;
  biased.biases = biases;
  biased.bias_count = 3;
  topk_query_options few = masked;
  few.allowed = two;
  enum { kBatch = 6 };
  const topk_query_options* const each[kBatch] = {&masked, &biased, NULL, &few, &biased, &masked};
  int32_t ids[kBatch * kK];
  float logits[kBatch * kK];
  double log_z[kBatch];
  uint8_t certified[kBatch];
  topk_flat_answers answers = {sizeof answers, ids, logits, log_z, certified};
  const char* const names[] = {"fused", "certified", "quantized"};
  topk_error error;
  for (size_t n = 0; n < 3; ++n) {
    topk_backend* const backend = build(&p, names[n], NULL);
    CHECK_OK(topk_query_each(backend, p.contexts, kBatch, kDim, 0, each, p.workspace, &answers, &error),
             error);
    for (size_t q = 0; q < kBatch; ++q) {
      int32_t id[kK];
      float logit[kK];
      topk_answer answer = TOPK_ANSWER_INIT;
      CHECK_OK(
          topk_query(backend, p.contexts + q * kDim, kDim, each[q], p.workspace, id, logit, &answer, &error),
          error);
      for (size_t i = 0; i < kK; ++i) {
        if (i < answer.count) {
          CHECK(ids[q * kK + i] == id[i] && logits[q * kK + i] == logit[i]);
        } else {
          CHECK(ids[q * kK + i] == -1);
        }
      }
      CHECK(log_z[q] == answer.log_z && certified[q] == answer.certified);
    }
    CHECK_OK(topk_query_each(backend, NULL, 0, kDim, 0, NULL, p.workspace, &answers, &error), error);
    memset(ids, 7, sizeof ids);
    few.allowed_words = 1;
    CHECK_FAILS(topk_query_each(backend, p.contexts, kBatch, kDim, 0, each, p.workspace, &answers, &error),
                error, TOPK_INVALID_ARGUMENT, "context 3");
    few.allowed_words = kWords;
    few.allowed = NULL;
    CHECK_FAILS(topk_query_each(backend, p.contexts, kBatch, kDim, 0, each, p.workspace, &answers, &error),
                error, TOPK_INVALID_ARGUMENT, "context 3");
    few.allowed = two;
    CHECK_FAILS(topk_query_each(backend, p.contexts, kBatch, kDim, 0, NULL, p.workspace, &answers, &error),
                error, TOPK_INVALID_ARGUMENT, "options");
    for (size_t i = 0; i < kBatch * kK; ++i) CHECK(ids[i] == 0x07070707);
    topk_backend_free(backend);
  }
  free_problem(&p);
}

void test_masks_and_biases(void) {
  problem p = make_problem();
  topk_backend* const backends[] = {build(&p, "fused", NULL), build(&p, "certified", NULL)};
  uint64_t allowed[kWords] = {0};
  for (size_t t = 0; t < kVocab; t += 3) allowed[t / 64] |= (uint64_t)1 << t % 64;
  const topk_token_bias biases[] = {{0, 2.0F}, {30, -1.5F}, {599, 40.0F}};
  topk_query_options options = TOPK_QUERY_OPTIONS_INIT;
  options.k = kK;
  options.allowed = allowed;
  options.allowed_words = kWords;
  options.biases = biases;
  options.bias_count = 3;
  options.log_z_tolerance = 0.0;
  double expected[kVocab];
  reference(&p, p.contexts, expected);
  for (size_t i = 0; i < 3; ++i) expected[biases[i].id] += (double)biases[i].bias;
  double sum = 0.0;
  for (size_t t = 0; t < kVocab; t += 3) sum += exp(expected[t]);
  for (size_t n = 0; n < 2; ++n) {
    int32_t ids[kK];
    float logits[kK];
    topk_answer answer = TOPK_ANSWER_INIT;
    topk_error error;
    CHECK_OK(topk_query(backends[n], p.contexts, kDim, &options, p.workspace, ids, logits, &answer, &error),
             error);
    CHECK(ids[0] != 599); /* 599 % 3 is 2 */
    CHECK(fabs(answer.log_z - log(sum)) < 1e-4);
    for (size_t i = 0; i < kK; ++i) {
      size_t before = 0;
      for (size_t t = 0; t < kVocab; t += 3) before += expected[t] > expected[ids[i]];
      CHECK(ids[i] % 3 == 0 && before == i && fabs(expected[ids[i]] - (double)logits[i]) < 1e-4);
    }

    /* Two tokens are allowed, six are asked for. */
    uint64_t two[kWords] = {0};
    two[0] = 1U << 5 | 1U << 9;
    options.allowed = two;
    CHECK_OK(topk_query(backends[n], p.contexts, kDim, &options, p.workspace, ids, logits, &answer, &error),
             error);
    CHECK(answer.count == 2 && ids[0] + ids[1] == 14 && ids[2] == -1 && ids[kK - 1] == -1);
    CHECK(logits[2] == -HUGE_VALF);
    options.allowed = allowed;

    /* Without log Z. */
    options.probabilities = 0;
    CHECK_OK(topk_query(backends[n], p.contexts, kDim, &options, p.workspace, ids, NULL, &answer, &error),
             error);
    CHECK(answer.normalizer == TOPK_NORMALIZER_NONE && isnan(answer.log_z));
    options.probabilities = 1;
    topk_backend_free(backends[n]);
  }
  free_problem(&p);
}

/* A mask in words of 32 bits, an odd number of them and no more than must be: as one of 64 bits. */
void test_masks_of_32_bits(void) {
  enum { kBatch = 4, kWords32 = (kVocab + 31) / 32 };
  problem p = make_problem();
  topk_error error;
  uint64_t allowed[kWords] = {0};
  uint32_t* const allowed32 = allocate(sizeof(uint32_t) * kWords32);
  memset(allowed32, 0, sizeof(uint32_t) * kWords32);
  CHECK(kWords32 % 2 == 1);
  for (size_t t = 1; t < kVocab; t += 1 + t % 5) {
    allowed[t / 64] |= (uint64_t)1 << t % 64;
    allowed32[t / 32] |= (uint32_t)1 << t % 32;
  }
  topk_query_options options[2] = {TOPK_QUERY_OPTIONS_INIT, TOPK_QUERY_OPTIONS_INIT};
  options[0].allowed = allowed;
  options[0].allowed_words = kWords;
  options[1].allowed32 = allowed32;
  options[1].allowed32_words = kWords32;
  topk_sampler* sampler;
  CHECK_OK(topk_sampler_new(NULL, &sampler, &error), error);
  static const char* const kNames[] = {"fused", "certified"};
  for (size_t n = 0; n < 2; ++n) {
    topk_backend* const backend = build(&p, kNames[n], NULL);
    int32_t ids[2][kK];
    topk_answer answer[2] = {TOPK_ANSWER_INIT, TOPK_ANSWER_INIT};
    int32_t batch[2][kBatch * kK];
    static float logits[2][kBatch * kVocab];
    topk_sampled_token token[2] = {TOPK_SAMPLED_TOKEN_INIT, TOPK_SAMPLED_TOKEN_INIT};
    for (size_t i = 0; i < 2; ++i) {
      options[i].k = kK;
      CHECK_OK(
          topk_query(backend, p.contexts, kDim, options + i, p.workspace, ids[i], NULL, answer + i, &error),
          error);
      const topk_flat_answers answers = {sizeof answers, batch[i], NULL, NULL, NULL};
      CHECK_OK(
          topk_query_batch(backend, p.contexts, kBatch, kDim, 0, options + i, p.workspace, &answers, &error),
          error);
      CHECK_OK(topk_logits(backend, p.contexts, kBatch, kDim, 0, options + i, p.workspace, logits[i], &error),
               error);
      topk_random* random;
      CHECK_OK(topk_random_new(9, &random, &error), error);
      CHECK_OK(topk_draw(sampler, backend, p.contexts, kDim, random, options + i, token + i, &error), error);
      topk_random_free(random);
    }
    CHECK(memcmp(ids[0], ids[1], sizeof ids[0]) == 0 && answer[0].log_z == answer[1].log_z);
    CHECK(memcmp(batch[0], batch[1], sizeof batch[0]) == 0);
    CHECK(memcmp(logits[0], logits[1], sizeof logits[0]) == 0);
    CHECK(token[0].id == token[1].id && token[0].log_prob == token[1].log_prob);
    for (size_t i = 0; i < kK; ++i) CHECK(allowed32[ids[1][i] / 32] >> ids[1][i] % 32 & 1);
    topk_backend_free(backend);
  }
  topk_sampler_free(sampler);
  free(allowed32);
  free_problem(&p);
}

void test_logits(void) {
  problem p = make_problem();
  topk_backend* const backend = build(&p, "certified", NULL);
  enum { kBatch = 3 };
  static float logits[kBatch * kVocab];
  uint64_t allowed[kWords];
  memset(allowed, 0xFF, sizeof allowed);
  allowed[0] &= ~(uint64_t)1;
  topk_query_options options = TOPK_QUERY_OPTIONS_INIT;
  options.allowed = allowed;
  options.allowed_words = kWords;
  topk_error error;
  CHECK_OK(topk_logits(backend, p.contexts, kBatch, kDim, 0, &options, p.workspace, logits, &error), error);
  for (size_t q = 0; q < kBatch; ++q) {
    double expected[kVocab];
    reference(&p, p.contexts + q * kDim, expected);
    CHECK(logits[q * kVocab] == -HUGE_VALF);
    for (size_t t = 1; t < kVocab; ++t) CHECK(fabs(expected[t] - (double)logits[q * kVocab + t]) < 1e-4);
  }
  CHECK_FAILS(topk_logits(backend, p.contexts, 1, kDim, 0, NULL, p.workspace, NULL, &error), error,
              TOPK_INVALID_ARGUMENT, "logits");
  CHECK_OK(topk_logits(backend, NULL, 0, kDim, 0, NULL, p.workspace, NULL, &error), error);
  topk_backend_free(backend);
  free_problem(&p);
}

void test_logits_of(void) {
  problem p = make_problem();
  topk_backend* const backend = build(&p, "certified", NULL);
  enum { kCount = 5 };
  const int32_t ids[kCount] = {599, 3, 0, 3, 64};
  uint64_t allowed[kWords];
  memset(allowed, 0xFF, sizeof allowed);
  allowed[1] &= ~(uint64_t)1; /* token 64 */
  const topk_token_bias bias = {3, 2.5F};
  topk_query_options options = TOPK_QUERY_OPTIONS_INIT;
  options.allowed = allowed;
  options.allowed_words = kWords;
  options.biases = &bias;
  options.bias_count = 1;
  static float all[kVocab];
  float logits[kCount];
  topk_error error;
  CHECK_OK(topk_logits(backend, p.contexts, 1, kDim, 0, &options, p.workspace, all, &error), error);
  CHECK_OK(topk_logits_of(backend, p.contexts, kDim, ids, kCount, &options, p.workspace, logits, &error),
           error);
  for (size_t i = 0; i < kCount; ++i) CHECK(logits[i] == all[ids[i]]);
  CHECK(logits[4] == -HUGE_VALF);
  CHECK_OK(topk_logits_of(backend, p.contexts, kDim, NULL, 0, NULL, p.workspace, NULL, &error), error);

  const int32_t none[] = {3, kVocab};
  logits[0] = 77.0F;
  CHECK_FAILS(topk_logits_of(backend, p.contexts, kDim, none, 2, NULL, p.workspace, logits, &error), error,
              TOPK_INVALID_ARGUMENT, "600");
  CHECK(logits[0] == 77.0F);
  CHECK_FAILS(topk_logits_of(backend, p.contexts, kDim, NULL, 2, NULL, p.workspace, logits, &error), error,
              TOPK_INVALID_ARGUMENT, "ids");
  CHECK_FAILS(topk_logits_of(backend, p.contexts, kDim, ids, 2, NULL, p.workspace, NULL, &error), error,
              TOPK_INVALID_ARGUMENT, "logits");
  CHECK_FAILS(topk_logits_of(backend, p.contexts, kDim - 1, ids, 2, NULL, p.workspace, logits, &error), error,
              TOPK_INVALID_ARGUMENT, "23 values");
  topk_backend_free(backend);
  free_problem(&p);
}

void test_query_errors(void) {
  problem p = make_problem();
  topk_backend* const backend = build(&p, "certified", NULL);
  int32_t ids[kK] = {77, 77, 77, 77, 77, 77};
  float logits[kK] = {77.0F};
  topk_answer answer = TOPK_ANSWER_INIT;
  answer.log_z = 77.0;
  topk_error error;
  topk_query_options options = TOPK_QUERY_OPTIONS_INIT;
  const float* h = p.contexts;
#define QUERY(dim) topk_query(backend, h, dim, &options, p.workspace, ids, logits, &answer, &error)
  options.k = 0;
  CHECK_FAILS(QUERY(kDim), error, TOPK_INVALID_ARGUMENT, "k is 0");
  options.k = kK;
  CHECK_FAILS(QUERY(kDim - 1), error, TOPK_INVALID_ARGUMENT, "23 values");
  uint64_t allowed[kWords] = {0};
  options.allowed = allowed;
  CHECK_FAILS(QUERY(kDim), error, TOPK_INVALID_ARGUMENT, "options.allowed");
  options.allowed_words = kWords - 1;
  CHECK_FAILS(QUERY(kDim), error, TOPK_INVALID_ARGUMENT, "the mask has");
  options.allowed = NULL;
  CHECK_FAILS(QUERY(kDim), error, TOPK_INVALID_ARGUMENT, "options.allowed is a null pointer");
  options.allowed_words = 0;
  const uint32_t allowed32[2 * kWords] = {0};
  options.allowed32 = allowed32;
  CHECK_FAILS(QUERY(kDim), error, TOPK_INVALID_ARGUMENT, "options.allowed32 is given, but its count is 0");
  options.allowed32_words = (kVocab - 1) / 32;
  CHECK_FAILS(QUERY(kDim), error, TOPK_INVALID_ARGUMENT, "the mask has bits for 576 ");
  options.allowed32_words = 2 * kWords;
  options.allowed = allowed;
  options.allowed_words = kWords;
  CHECK_FAILS(QUERY(kDim), error, TOPK_INVALID_ARGUMENT, "both given");
  options.allowed = NULL;
  options.allowed_words = 0;
  options.allowed32 = NULL;
  CHECK_FAILS(QUERY(kDim), error, TOPK_INVALID_ARGUMENT, "options.allowed32 is a null pointer");
  options.allowed32_words = 0;
  const topk_token_bias biases[] = {{7, 1.0F}, {3, 1.0F}};
  options.bias_count = 2;
  CHECK_FAILS(QUERY(kDim), error, TOPK_INVALID_ARGUMENT,
              "options.biases is a null pointer, but its count is 2");
  options.biases = biases;
  CHECK_FAILS(QUERY(kDim), error, TOPK_INVALID_ARGUMENT, "token 3 after 7");
  options.biases = NULL;
  options.bias_count = 0;
  options.log_z_tolerance = -1.0;
  CHECK_FAILS(QUERY(kDim), error, TOPK_INVALID_ARGUMENT, "log_z_tolerance");
  options.log_z_tolerance = HUGE_VAL;
  p.contexts[5] = NAN;
  CHECK_FAILS(QUERY(kDim), error, TOPK_INVALID_ARGUMENT, "h[5] is NaN");
  p.contexts[5] = 0.0F;
  h = NULL;
  CHECK_FAILS(QUERY(kDim), error, TOPK_INVALID_ARGUMENT, "h is a null pointer");
#undef QUERY
  h = p.contexts;
  CHECK_FAILS(topk_query(NULL, h, kDim, NULL, p.workspace, ids, NULL, NULL, &error), error,
              TOPK_INVALID_ARGUMENT, "backend");
  CHECK_FAILS(topk_query(backend, h, kDim, NULL, NULL, ids, NULL, NULL, &error), error, TOPK_INVALID_ARGUMENT,
              "workspace");
  CHECK_FAILS(topk_query(backend, h, kDim, NULL, p.workspace, NULL, NULL, NULL, &error), error,
              TOPK_INVALID_ARGUMENT, "ids");
  CHECK(ids[0] == 77 && ids[kK - 1] == 77 && logits[0] == 77.0F && answer.log_z == 77.0);

  /* More than V tokens: V of them, and places without one. */
  enum { kMany = kVocab + 10 };
  int32_t many[kMany];
  options.k = kMany;
  CHECK_OK(topk_query(backend, h, kDim, &options, p.workspace, many, NULL, &answer, &error), error);
  CHECK(answer.count == kVocab && many[kVocab - 1] >= 0 && many[kVocab] == -1 && many[kMany - 1] == -1);
  topk_backend_free(backend);
  free_problem(&p);
}

void test_struct_sizes(void) {
  problem p = make_problem();
  topk_backend* const backend = build(&p, "fused", NULL);
  topk_error error;
  int32_t ids[kK];
  topk_query_options options = TOPK_QUERY_OPTIONS_INIT;
  options.k = kK;
  options.struct_size = 0; /* never set */
  CHECK_FAILS(topk_query(backend, p.contexts, kDim, &options, p.workspace, ids, NULL, NULL, &error), error,
              TOPK_INVALID_ARGUMENT, "struct_size is 0");
  options.struct_size = sizeof options + 8; /* of a later version */
  CHECK_FAILS(topk_query(backend, p.contexts, kDim, &options, p.workspace, ids, NULL, NULL, &error), error,
              TOPK_INVALID_ARGUMENT, "options: struct_size");

  /* Of an earlier version, which ended behind k: all else has its default. */
  options.struct_size = offsetof(topk_query_options, allowed);
  options.bias_count = 99;
  CHECK_OK(topk_query(backend, p.contexts, kDim, &options, p.workspace, ids, NULL, NULL, &error), error);
  options.bias_count = 0;
  options.struct_size = offsetof(topk_query_options, allowed32); /* and of one that ended there */
  options.allowed32_words = 99;
  CHECK_OK(topk_query(backend, p.contexts, kDim, &options, p.workspace, ids, NULL, NULL, &error), error);

  /* An answer that ends behind log_z: nothing behind that is written. */
  topk_answer answer = TOPK_ANSWER_INIT;
  answer.struct_size = offsetof(topk_answer, log_z_low);
  answer.log_z_low = 77.0;
  CHECK_OK(topk_query(backend, p.contexts, kDim, NULL, p.workspace, ids, NULL, &answer, &error), error);
  CHECK(answer.count == 1 && answer.log_z > 0.0 && answer.log_z_low == 77.0);
  CHECK(answer.struct_size == offsetof(topk_answer, log_z_low));
  answer.struct_size = sizeof answer + 1;
  CHECK_FAILS(topk_query(backend, p.contexts, kDim, NULL, p.workspace, ids, NULL, &answer, &error), error,
              TOPK_INVALID_ARGUMENT, "answer: struct_size");
  topk_backend_free(backend);
  free_problem(&p);
}

void test_out_of_memory(void) {
  topk_error error;
  topk_workspace* workspace = NULL;
  CHECK_FAILS(topk_workspace_new(SIZE_MAX, NULL, &workspace, &error), error, TOPK_OUT_OF_MEMORY, "memory");
  CHECK(workspace == NULL);
  CHECK_FAILS(topk_workspace_new(1, NULL, NULL, &error), error, TOPK_INVALID_ARGUMENT, "workspace");
  topk_workspace_free(NULL);
}

/* The name is in the message, which is too long for it: it ends between two characters. */
void test_messages_are_cut(void) {
  problem p = make_problem();
  topk_error error;
  topk_backend* backend = NULL;
  for (int ahead = 0; ahead < 2; ++ahead) {
    char name[2 * TOPK_MESSAGE_SIZE + 2] = "x";
    for (size_t i = 0; i + 2 < sizeof name; i += 2) memcpy(name + ahead + i, "\xC3\xA4", 3);
    CHECK(topk_build(p.layer, name, NULL, NULL, &backend, &error) == TOPK_ERROR);
    const size_t length = strlen(error.message);
    CHECK(length == TOPK_MESSAGE_SIZE - 1 || length == TOPK_MESSAGE_SIZE - 2);
    CHECK((unsigned char)error.message[length - 1] == 0xA4);
  }
  free_problem(&p);
}
