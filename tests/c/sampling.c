/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "tests.h"

enum { kDraws = 200, kWords = (kVocab + 63) / 64 };

static topk_sampler* sampler_of(double temperature, size_t top_k, double top_p) {
  topk_sampling_options options = TOPK_SAMPLING_OPTIONS_INIT;
  options.temperature = temperature;
  options.top_k = top_k;
  options.top_p = top_p;
  topk_sampler* sampler = NULL;
  topk_error error;
  CHECK_OK(topk_sampler_new(&options, &sampler, &error), error);
  return sampler;
}

static topk_random* random_of(uint64_t seed) {
  topk_random* random = NULL;
  topk_error error;
  CHECK_OK(topk_random_new(seed, &random, &error), error);
  return random;
}

/* Draws kDraws tokens, after one context after the other. */
static void draw(const problem* p, const topk_backend* backend, topk_sampler* sampler, uint64_t seed,
                 const topk_query_options* query, topk_sampled_token* tokens) {
  topk_random* const random = random_of(seed);
  for (size_t i = 0; i < kDraws; ++i) {
    topk_error error;
    tokens[i] = (topk_sampled_token)TOPK_SAMPLED_TOKEN_INIT;
    CHECK_OK(topk_draw(sampler, backend, p->contexts + i * kDim, kDim, random, query, tokens + i, &error),
             error);
  }
  topk_random_free(random);
}

static size_t same_ids(const topk_sampled_token* a, const topk_sampled_token* b) {
  size_t same = 0;
  for (size_t i = 0; i < kDraws; ++i) same += a[i].id == b[i].id;
  return same;
}

void test_sampling(void) {
  problem p = make_problem();
  topk_backend* const fused = build(&p, "fused", NULL);
  topk_backend* const certified = build(&p, "certified", NULL);
  topk_sampled_token first[kDraws];
  topk_sampled_token second[kDraws];
  topk_sampler* const sampler = sampler_of(0.9, 0, 0.95);
  topk_sampler* const another = sampler_of(0.9, 0, 0.95);

  /* A seed decides, whoever draws and whatever backend is asked. */
  draw(&p, fused, sampler, 5, NULL, first);
  draw(&p, fused, another, 5, NULL, second);
  CHECK(same_ids(first, second) == kDraws);
  draw(&p, certified, sampler, 5, NULL, second);
  CHECK(same_ids(first, second) == kDraws);
  draw(&p, fused, sampler, 6, NULL, second);
  CHECK(same_ids(first, second) < kDraws);
  for (size_t i = 0; i < kDraws; ++i) {
    CHECK(first[i].id >= 0 && first[i].id < kVocab && first[i].log_prob <= 0.0);
    CHECK(first[i].log_prob_low <= first[i].log_prob && first[i].log_prob <= first[i].log_prob_high);
  }

  /* Greedy, and the best of one: the most probable token. */
  topk_sampler* const greedy = sampler_of(0.0, 0, 1.0);
  topk_sampler* const best = sampler_of(1.0, 1, 1.0);
  draw(&p, certified, greedy, 1, NULL, first);
  draw(&p, fused, best, 2, NULL, second);
  CHECK(same_ids(first, second) == kDraws);
  for (size_t i = 0; i < kDraws; ++i) {
    int32_t id = -1;
    float logit = 0.0F;
    topk_error error;
    CHECK_OK(topk_query(fused, p.contexts + i * kDim, kDim, NULL, p.workspace, &id, &logit, NULL, &error),
             error);
    CHECK(first[i].id == id && first[i].logit == logit && first[i].log_prob == 0.0);
  }

  /* Without the best token, where it is probable: whichever comes first, another one is drawn. */
  topk_sampling_options options = TOPK_SAMPLING_OPTIONS_INIT;
  options.top_k = 2;
  options.xtc_probability = 1.0;
  options.xtc_threshold = 1e-9;
  options.order = TOPK_ORDER_LLAMA_CPP;
  topk_sampler* exclusive = NULL;
  topk_error failure;
  CHECK_OK(topk_sampler_new(&options, &exclusive, &failure), failure);
  draw(&p, certified, exclusive, 1, NULL, second);
  CHECK(same_ids(first, second) == 0);

  /* The same order, and another one, that leaves nothing to choose from before the first can be left out. */
  uint8_t steps[] = {TOPK_STEP_TOP_N_SIGMA, TOPK_STEP_TOP_K, TOPK_STEP_TYPICAL_P,  TOPK_STEP_TOP_P,
                     TOPK_STEP_MIN_P,       TOPK_STEP_XTC,   TOPK_STEP_TEMPERATURE};
  options.order = TOPK_ORDER_OF_STEPS;
  options.steps = steps;
  options.step_count = sizeof(steps);
  topk_sampler* listed = NULL;
  CHECK_OK(topk_sampler_new(&options, &listed, &failure), failure);
  topk_sampled_token third[kDraws];
  draw(&p, certified, listed, 1, NULL, third);
  CHECK(same_ids(second, third) == kDraws);
  topk_sampler_free(listed);
  steps[0] = TOPK_STEP_XTC;
  steps[5] = TOPK_STEP_TOP_N_SIGMA;
  CHECK_OK(topk_sampler_new(&options, &listed, &failure), failure);
  draw(&p, certified, listed, 1, NULL, third);
  CHECK(same_ids(second, third) < kDraws);
  topk_sampler_free(listed);

  /* Steps that are missing, named twice, unknown, or no order. */
  options.step_count = 6;
  CHECK(topk_sampler_new(&options, &listed, &failure) == TOPK_INVALID_ARGUMENT);
  CHECK(strstr(failure.message, "step_count is 6; there are 7 steps") != NULL);
  options.step_count = sizeof(steps);
  steps[0] = TOPK_STEP_TOP_K;
  CHECK(topk_sampler_new(&options, &listed, &failure) == TOPK_INVALID_ARGUMENT);
  CHECK(strstr(failure.message, "every step once") != NULL);
  steps[0] = 7;
  CHECK(topk_sampler_new(&options, &listed, &failure) == TOPK_INVALID_ARGUMENT);
  options.order = TOPK_ORDER_LLAMA_CPP;
  CHECK(topk_sampler_new(&options, &listed, &failure) == TOPK_INVALID_ARGUMENT);
  CHECK(strstr(failure.message, "TOPK_ORDER_OF_STEPS") != NULL);
  options.order = TOPK_ORDER_OF_STEPS;
  options.steps = NULL;
  CHECK(topk_sampler_new(&options, &listed, &failure) == TOPK_INVALID_ARGUMENT);
  topk_sampler_free(exclusive);

  /* A mask and a bias. */
  uint64_t allowed[kWords] = {0};
  allowed[1] = 3; /* tokens 64 and 65 */
  const topk_token_bias bias = {65, 100.0F};
  topk_query_options query = TOPK_QUERY_OPTIONS_INIT;
  query.allowed = allowed;
  query.allowed_words = kWords;
  query.biases = &bias;
  query.bias_count = 1;
  draw(&p, fused, sampler, 1, &query, first);
  for (size_t i = 0; i < kDraws; ++i) CHECK(first[i].id == 65);

  topk_sampler_free(best);
  topk_sampler_free(greedy);
  topk_sampler_free(another);
  topk_sampler_free(sampler);
  topk_backend_free(certified);
  topk_backend_free(fused);
  free_problem(&p);
}

void test_sampled_log_z(void) {
  problem p = make_problem();
  topk_backend* const backend = build(&p, "certified", NULL);
  topk_sampling_options options = TOPK_SAMPLING_OPTIONS_INIT;
  options.top_p = 0.9;
  topk_sampler* const exact = sampler_of(1.0, 0, 0.9);
  options.log_z_error = 0.01;
  topk_sampler* sampled = NULL;
  topk_error error;
  CHECK_OK(topk_sampler_new(&options, &sampled, &error), error);
  topk_sampled_token expected[kDraws];
  topk_sampled_token found[kDraws];
  draw(&p, backend, exact, 5, NULL, expected);
  draw(&p, backend, sampled, 5, NULL, found);
  /* Tokens at the edge of a nucleus alone may be in or out. */
  CHECK(same_ids(expected, found) >= kDraws - kDraws / 20);
  size_t alike = 0;
  size_t narrower = 0;
  for (size_t i = 0; i < kDraws; ++i) {
    alike += found[i].log_prob_low <= expected[i].log_prob_high + 0.02 &&
             expected[i].log_prob_low <= found[i].log_prob_high + 0.02;
    narrower +=
        found[i].log_prob_high - found[i].log_prob_low < expected[i].log_prob_high - expected[i].log_prob_low;
  }
  CHECK(alike >= kDraws - kDraws / 20);
  CHECK(narrower > 0); /* a sample was drawn */
  options.log_z_error = -1.0;
  topk_sampler* none = NULL;
  CHECK_FAILS(topk_sampler_new(&options, &none, &error), error, TOPK_INVALID_ARGUMENT, "log_z_error");

  /* A program that was compiled before there was this member has the exact log Z. */
  options.log_z_error = 5.0;
  options.struct_size = offsetof(topk_sampling_options, log_z_error);
  topk_sampler* of_before = NULL;
  CHECK_OK(topk_sampler_new(&options, &of_before, &error), error);
  draw(&p, backend, of_before, 5, NULL, found);
  CHECK(same_ids(expected, found) == kDraws);
  topk_sampler_free(of_before);
  topk_sampler_free(sampled);
  topk_sampler_free(exact);
  topk_backend_free(backend);
  free_problem(&p);
}

void test_draws_of_a_backend(void) {
  enum { kListed = 5 };
  problem p = make_problem();
  topk_backend* const certified = build(&p, "certified", NULL);
  topk_backend* const l2s = build(&p, "l2s", "clusters=8 budget=60 rounds=2");
  topk_sampler* const sampler = sampler_of(1.0, 0, 1.0);
  topk_sampled_token expected[kDraws];
  draw(&p, certified, sampler, 5, NULL, expected);
  topk_random* const one = random_of(5);
  topk_random* const other = random_of(5);
  topk_error error;
  size_t listed = 0;
  for (size_t i = 0; i < kDraws; ++i) {
    const float* const h = p.contexts + i * kDim;
    topk_sampled_token token = TOPK_SAMPLED_TOKEN_INIT;
    CHECK_OK(topk_draw_own(sampler, certified, h, kDim, one, NULL, &token, &error), error);
    CHECK(token.id == expected[i].id); /* what is proven has the layer's distribution */

    CHECK_OK(topk_draw_own(sampler, l2s, h, kDim, other, NULL, &token, &error), error);
    topk_query_options query = TOPK_QUERY_OPTIONS_INIT;
    query.k = kListed;
    topk_answer answer = TOPK_ANSWER_INIT;
    int32_t ids[kListed];
    CHECK_OK(topk_query(l2s, h, kDim, &query, p.workspace, ids, NULL, &answer, &error), error);
    for (size_t j = 0; j < answer.count; ++j) {
      if (ids[j] != token.id) continue;
      CHECK(fabs(token.log_prob - (token.logit - answer.log_z)) < 1e-4); /* by its own log Z */
      ++listed;
    }
  }
  CHECK(listed > kDraws / 4);

  topk_sampled_token token = TOPK_SAMPLED_TOKEN_INIT;
  CHECK_FAILS(topk_draw_own(sampler, l2s, NULL, kDim, other, NULL, &token, &error), error,
              TOPK_INVALID_ARGUMENT, "h");
  CHECK_FAILS(topk_draw_own(sampler, l2s, p.contexts, kDim - 1, other, NULL, &token, &error), error,
              TOPK_INVALID_ARGUMENT, "dimension");
  topk_random_free(other);
  topk_random_free(one);
  topk_sampler_free(sampler);
  topk_backend_free(l2s);
  topk_backend_free(certified);
  free_problem(&p);
}

/* A server's requests, on two threads: each draws what it draws alone. */
void test_draws_of_a_batch(void) {
  enum { kBatch = 6 };
  problem p = make_problem();
  topk_error error;
  topk_workspace* threads = NULL;
  CHECK_OK(topk_workspace_new(2, NULL, &threads, &error), error);
  topk_sampler* samplers[kBatch];
  topk_random* randoms[kBatch];
  topk_random* same[kBatch];
  for (size_t i = 0; i < kBatch; ++i) {
    samplers[i] = sampler_of(i == 1 ? 0.0 : 0.9, i == 2 ? 5 : 0, i == 3 ? 0.9 : 1.0);
    randoms[i] = random_of(i);
    same[i] = random_of(i);
  }
  uint64_t even[kWords];
  for (size_t i = 0; i < kWords; ++i) even[i] = 0x5555555555555555U;
  const topk_token_bias biases[] = {{3, 4.0F}};
  topk_query_options masked = TOPK_QUERY_OPTIONS_INIT;
  masked.allowed = even;
  masked.allowed_words = kWords;
  topk_query_options biased = TOPK_QUERY_OPTIONS_INIT;
  biased.biases = biases;
  biased.bias_count = 1;
  biased.probabilities = 0;
  const topk_query_options* const queries[kBatch] = {&masked, NULL, &biased, &masked, &biased, NULL};
  int32_t ids[kBatch];
  float logits[kBatch];
  double log_prob[kBatch];
  double low[kBatch];
  double high[kBatch];
  topk_flat_tokens tokens = {sizeof tokens, ids, logits, log_prob, low, high};
  const char* const names[] = {"fused", "certified", "l2s"};
  for (size_t n = 0; n < 3; ++n) {
    topk_backend* const backend = build(&p, names[n], NULL);
    for (size_t step = 0; step < 10; ++step) {
      const float* const H = p.contexts + step * kDim;
      CHECK_OK(topk_draw_each(backend, H, kBatch, kDim, 2 * kDim, samplers, randoms, queries, threads,
                              &tokens, &error),
               error);
      for (size_t i = 0; i < kBatch; ++i) {
        topk_sampled_token token = TOPK_SAMPLED_TOKEN_INIT;
        CHECK_OK(topk_draw(samplers[i], backend, H + 2 * i * kDim, kDim, same[i], queries[i], &token, &error),
                 error);
        CHECK(ids[i] == token.id && logits[i] == token.logit && log_prob[i] == token.log_prob);
        CHECK(low[i] == token.log_prob_low && high[i] == token.log_prob_high);
      }
    }

    /* Ids alone, without options, and of no context. */
    topk_flat_tokens only_ids = TOPK_FLAT_TOKENS_INIT;
    only_ids.ids = ids;
    CHECK_OK(topk_draw_each(backend, p.contexts, kBatch, kDim, 0, samplers, randoms, NULL, threads, &only_ids,
                            &error),
             error);
    for (size_t i = 0; i < kBatch; ++i) {
      topk_sampled_token token = TOPK_SAMPLED_TOKEN_INIT;
      CHECK_OK(topk_draw(samplers[i], backend, p.contexts + i * kDim, kDim, same[i], NULL, &token, &error),
               error);
      CHECK(ids[i] == token.id);
    }
    only_ids.ids = NULL;
    CHECK_OK(topk_draw_each(backend, NULL, 0, kDim, 0, NULL, NULL, NULL, threads, &only_ids, &error), error);

    /* What cannot be drawn writes nothing and takes no number. */
    memset(ids, 7, sizeof ids);
    const uint64_t none[kWords] = {0};
    topk_query_options nothing = masked;
    nothing.allowed = none;
    const topk_query_options* const last_fails[kBatch] = {NULL, NULL, NULL, NULL, NULL, &nothing};
    topk_random* const shared[kBatch] = {randoms[0], randoms[0], randoms[2],
                                         randoms[3], randoms[4], randoms[5]};
    CHECK_FAILS(topk_draw_each(backend, p.contexts, kBatch, kDim, 0, samplers, shared, last_fails, threads,
                               &tokens, &error),
                error, TOPK_INVALID_ARGUMENT, "context 5: sampling: no token is allowed");
    nothing.k = 0;
    CHECK_FAILS(topk_draw_each(backend, p.contexts, kBatch, kDim, 0, samplers, shared, last_fails, threads,
                               &tokens, &error),
                error, TOPK_INVALID_ARGUMENT, "context 5: query: k is 0");
    for (size_t i = 0; i < kBatch; ++i) CHECK(ids[i] == 0x07070707);
    topk_backend_free(backend);
  }

  topk_backend* const fused = build(&p, "fused", NULL);
  topk_sampler* const last = samplers[5];
  samplers[5] = samplers[0];
  CHECK_FAILS(
      topk_draw_each(fused, p.contexts, kBatch, kDim, 0, samplers, randoms, NULL, threads, &tokens, &error),
      error, TOPK_INVALID_ARGUMENT, "the same sampler");
  samplers[5] = NULL;
  CHECK_FAILS(
      topk_draw_each(fused, p.contexts, kBatch, kDim, 0, samplers, randoms, NULL, threads, &tokens, &error),
      error, TOPK_INVALID_ARGUMENT, "samplers[5]");
  samplers[5] = last;
  CHECK_FAILS(
      topk_draw_each(fused, p.contexts, kBatch, kDim, 0, samplers, NULL, NULL, threads, &tokens, &error),
      error, TOPK_INVALID_ARGUMENT, "randoms");
  CHECK_FAILS(
      topk_draw_each(fused, p.contexts, kBatch, kDim, 0, samplers, randoms, NULL, threads, NULL, &error),
      error, TOPK_INVALID_ARGUMENT, "tokens");
  topk_backend_free(fused);
  for (size_t i = 0; i < kBatch; ++i) {
    topk_sampler_free(samplers[i]);
    topk_random_free(randoms[i]);
    topk_random_free(same[i]);
  }
  topk_workspace_free(threads);
  free_problem(&p);
}

void test_sampling_errors(void) {
  problem p = make_problem();
  topk_error error;
  topk_backend* const fused = build(&p, "fused", NULL);
  topk_sampler* sampler = NULL;
  topk_sampling_options options = TOPK_SAMPLING_OPTIONS_INIT;
  options.top_p = 1.5;
  CHECK_FAILS(topk_sampler_new(&options, &sampler, &error), error, TOPK_INVALID_ARGUMENT, "top_p");
  CHECK(sampler == NULL);
  options = (topk_sampling_options)TOPK_SAMPLING_OPTIONS_INIT;
  options.order = 3;
  CHECK_FAILS(topk_sampler_new(&options, &sampler, &error), error, TOPK_INVALID_ARGUMENT, "order is 3");
  CHECK_OK(topk_sampler_new(NULL, &sampler, &error), error);

  /* A draw that fails takes no number of the stream. */
  topk_random* const one = random_of(3);
  topk_random* const other = random_of(3);
  topk_sampled_token tokens[2] = {TOPK_SAMPLED_TOKEN_INIT, TOPK_SAMPLED_TOKEN_INIT};
  tokens[0].id = 77;
  uint64_t none[kWords] = {0};
  topk_query_options query = TOPK_QUERY_OPTIONS_INIT;
  query.allowed = none;
  query.allowed_words = kWords;
  CHECK_FAILS(topk_draw(sampler, fused, p.contexts, kDim, one, &query, tokens, &error), error,
              TOPK_INVALID_ARGUMENT, "no token");
  CHECK(tokens[0].id == 77);
  CHECK_FAILS(topk_draw(sampler, fused, NULL, kDim, one, NULL, tokens, &error), error, TOPK_INVALID_ARGUMENT,
              "h");
  CHECK_FAILS(topk_draw(sampler, fused, p.contexts, kDim, NULL, NULL, tokens, &error), error,
              TOPK_INVALID_ARGUMENT, "random");
  CHECK_OK(topk_draw(sampler, fused, p.contexts, kDim, one, NULL, tokens, &error), error);
  CHECK_OK(topk_draw(sampler, fused, p.contexts, kDim, other, NULL, tokens + 1, &error), error);
  CHECK(tokens[0].id == tokens[1].id && tokens[0].log_prob == tokens[1].log_prob);
  topk_random_free(other);
  topk_random_free(one);
  topk_random_free(NULL);
  topk_sampler_free(sampler);
  topk_sampler_free(NULL);
  topk_backend_free(fused);
  free_problem(&p);
}
