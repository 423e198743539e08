/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h"

enum { kThreads = 3, kLargeVocab = 30000, kLargeDim = 64, kK = 10 };

/* A loop that threads take parts of. */
typedef struct loop {
  topk_loop_body body;
  const void* of;
  size_t parts;
  size_t next;
  pthread_mutex_t mutex;
} loop;

typedef struct worker {
  loop* shared;
  size_t thread;
} worker;

static void* work(void* argument) {
  const worker* const w = argument;
  for (;;) {
    pthread_mutex_lock(&w->shared->mutex);
    const size_t part = w->shared->next++;
    pthread_mutex_unlock(&w->shared->mutex);
    if (part >= w->shared->parts) return NULL;
    w->shared->body(w->shared->of, part, w->thread);
  }
}

static size_t three_threads(void* user) {
  (void)user;
  return kThreads;
}

/* Starts threads for the loop; counts the loops in *user. */
static int run_on_threads(void* user, size_t parts, size_t threads, topk_loop_body body, const void* of) {
  loop shared = {body, of, parts, 0, PTHREAD_MUTEX_INITIALIZER};
  worker workers[kThreads];
  pthread_t started[kThreads];
  ++*(int*)user;
  CHECK(threads >= 1 && threads <= kThreads);
  for (size_t i = 1; i < threads; ++i) {
    workers[i] = (worker){&shared, i};
    if (pthread_create(&started[i], NULL, work, &workers[i]) != 0) exit(EXIT_FAILURE);
  }
  workers[0] = (worker){&shared, 0};
  work(&workers[0]);
  for (size_t i = 1; i < threads; ++i) pthread_join(started[i], NULL);
  return 0;
}

/* A backend whose reading is worth threads. */
typedef struct large {
  float* W;
  topk_layer* layer;
  topk_backend* backend;
} large;

static large make_large(void) {
  large made;
  made.W = allocate(sizeof(float) * kLargeVocab * kLargeDim);
  fill(made.W, (size_t)kLargeVocab * kLargeDim, 8, 0.5F);
  topk_weights weights = TOPK_WEIGHTS_INIT;
  weights.data = made.W;
  weights.vocab = kLargeVocab;
  weights.dim = kLargeDim;
  topk_error error;
  CHECK_OK(topk_layer_borrow(&weights, &made.layer, &error), error);
  CHECK_OK(topk_build(made.layer, "quantized", NULL, NULL, &made.backend, &error), error);
  return made;
}

static void free_large(large* made) {
  topk_backend_free(made->backend);
  topk_layer_free(made->layer);
  free(made->W);
}

/* A batch, single queries and logits, on threads of ours: the same bits as on one. */
void test_executors(void) {
  large made = make_large();
  topk_backend* const backend = made.backend;
  enum { kBatch = 40 };
  float contexts[kBatch * kLargeDim];
  fill(contexts, (size_t)kBatch * kLargeDim, 9, 2.0F);

  int loops = 0;
  const topk_executor executor = {&loops, three_threads, run_on_threads};
  topk_error error;
  topk_workspace* one;
  topk_workspace* all;
  CHECK_OK(topk_workspace_new(1, NULL, &one, &error), error);
  CHECK_OK(topk_workspace_new(0, &executor, &all, &error), error);

  topk_query_options options = TOPK_QUERY_OPTIONS_INIT;
  options.k = kK;
  int32_t ids[2][kBatch * kK];
  float logits[2][kBatch * kK];
  topk_workspace* const workspaces[] = {one, all};
  for (int w = 0; w < 2; ++w) {
    loops = 0;
    const topk_flat_answers answers = {sizeof answers, ids[w], logits[w], NULL, NULL};
    CHECK_OK(
        topk_query_batch(backend, contexts, kBatch, kLargeDim, 0, &options, workspaces[w], &answers, &error),
        error);
    CHECK((loops > 0) == (w == 1));
  }
  CHECK(memcmp(ids[0], ids[1], sizeof ids[0]) == 0 && memcmp(logits[0], logits[1], sizeof logits[0]) == 0);

  loops = 0;
  for (size_t q = 0; q < kBatch; ++q) {
    int32_t id[kK];
    CHECK_OK(topk_query(backend, contexts + q * kLargeDim, kLargeDim, &options, all, id, NULL, NULL, &error),
             error);
    CHECK(memcmp(id, ids[0] + q * kK, sizeof id) == 0);
  }
  CHECK(loops > 0);

  float* const every[] = {allocate(sizeof(float) * 2 * kLargeVocab),
                          allocate(sizeof(float) * 2 * kLargeVocab)};
  for (int w = 0; w < 2; ++w) {
    loops = 0;
    CHECK_OK(topk_logits(backend, contexts, 2, kLargeDim, 0, NULL, workspaces[w], every[w], &error), error);
    CHECK((loops > 0) == (w == 1));
  }
  CHECK(memcmp(every[0], every[1], sizeof(float) * 2 * kLargeVocab) == 0);
  for (int w = 0; w < 2; ++w) free(every[w]);
  topk_workspace_free(all);
  topk_workspace_free(one);
  free_large(&made);
}

/* Draws on threads of ours: the same tokens as on one. Counts of loops tell which were lent. */
void test_draws_on_an_executor(void) {
  typedef topk_status (*draw)(topk_sampler*, const topk_backend*, const float*, size_t, topk_random*,
                              const topk_query_options*, topk_sampled_token*, topk_error*);
  const draw kDraws[] = {topk_draw, topk_draw_own};
  enum { kBatch = 10 };
  large made = make_large();
  float contexts[kBatch * kLargeDim];
  fill(contexts, (size_t)kBatch * kLargeDim, 9, 2.0F);
  int loops = 0;
  const topk_executor executor = {&loops, three_threads, run_on_threads};
  topk_error error;
  for (int d = 0; d < 2; ++d) {
    topk_random* random[2];
    topk_sampler* samplers[2];
    for (int n = 0; n < 2; ++n) {
      CHECK_OK(topk_random_new(7, &random[n], &error), error);
      CHECK_OK(topk_sampler_new(NULL, &samplers[n], &error), error);
    }
    CHECK_OK(topk_sampler_lend_threads(samplers[1], 0, &executor, &error), error);
    for (size_t q = 0; q < kBatch; ++q) {
      topk_sampled_token tokens[2] = {TOPK_SAMPLED_TOKEN_INIT, TOPK_SAMPLED_TOKEN_INIT};
      for (int n = 0; n < 2; ++n) {
        loops = 0;
        CHECK_OK(kDraws[d](samplers[n], made.backend, contexts + q * kLargeDim, kLargeDim, random[n], NULL,
                           &tokens[n], &error),
                 error);
        CHECK((loops > 0) == (n == 1));
      }
      CHECK(memcmp(&tokens[0], &tokens[1], sizeof tokens[0]) == 0);
    }
    /* One thread of three. */
    topk_sampled_token token = TOPK_SAMPLED_TOKEN_INIT;
    CHECK_OK(topk_sampler_lend_threads(samplers[1], 1, &executor, &error), error);
    loops = 0;
    CHECK_OK(kDraws[d](samplers[1], made.backend, contexts, kLargeDim, random[1], NULL, &token, &error),
             error);
    CHECK(loops == 0);
    for (int n = 0; n < 2; ++n) {
      topk_sampler_free(samplers[n]);
      topk_random_free(random[n]);
    }
  }
  free_large(&made);
}

/* The same of tokens in falling order. */
void test_cursor_on_an_executor(void) {
  large made = make_large();
  float contexts[2 * kLargeDim];
  fill(contexts, (size_t)2 * kLargeDim, 9, 2.0F);
  int loops = 0;
  const topk_executor executor = {&loops, three_threads, run_on_threads};
  topk_error error;
  topk_cursor* cursors[2];
  for (int n = 0; n < 2; ++n)
    CHECK_OK(topk_cursor_new(made.backend, contexts, kLargeDim, NULL, &cursors[n], &error), error);
  CHECK_OK(topk_cursor_lend_threads(cursors[1], 2, &executor, &error), error);
  for (int n = 0; n < 2; ++n) {
    loops = 0;
    CHECK_OK(topk_cursor_start(cursors[n], contexts + kLargeDim, kLargeDim, NULL, &error), error);
    CHECK((loops > 0) == (n == 1));
  }
  for (size_t i = 0; i < 50; ++i) {
    int32_t ids[2];
    float logits[2];
    for (int n = 0; n < 2; ++n) CHECK_OK(topk_cursor_next(cursors[n], &ids[n], &logits[n], &error), error);
    CHECK(ids[0] == ids[1] && logits[0] == logits[1]);
  }
  for (int n = 0; n < 2; ++n) topk_cursor_free(cursors[n]);
  free_large(&made);
}

void test_build_on_an_executor(void) {
  problem p = make_problem();
  topk_error error;
  int loops = 0;
  const topk_executor executor = {&loops, three_threads, run_on_threads};
  topk_build_material material = TOPK_BUILD_MATERIAL_INIT;
  material.contexts = p.contexts;
  material.context_count = kContexts;
  material.executor = &executor;
  topk_backend* backends[2] = {build(&p, "l2s", "clusters=8 rounds=1"), NULL};
  CHECK_OK(topk_build(p.layer, "l2s", "clusters=8 rounds=1", &material, &backends[1], &error), error);
  CHECK(loops > 0);
  int32_t ids[2][kContexts];
  for (int n = 0; n < 2; ++n) {
    const topk_flat_answers answers = {sizeof answers, ids[n], NULL, NULL, NULL};
    CHECK_OK(
        topk_query_batch(backends[n], p.contexts, kContexts, kDim, 0, NULL, p.workspace, &answers, &error),
        error);
    topk_backend_free(backends[n]);
  }
  CHECK(memcmp(ids[0], ids[1], sizeof ids[0]) == 0);
  free_problem(&p);
}

/* Of a loop that has more parts than are handed over at a time, every part is done, and once. */
void test_loops_of_many_parts(void) {
  enum { kFew = 5, kLongDim = 9000 };
  float* const W = allocate(sizeof(float) * kFew * kLongDim);
  float* const h = allocate(sizeof(float) * kLongDim);
  fill(W, (size_t)kFew * kLongDim, 10, 0.1F);
  fill(h, kLongDim, 11, 1.0F);
  topk_weights weights = TOPK_WEIGHTS_INIT;
  weights.data = W;
  weights.vocab = kFew;
  weights.dim = kLongDim;
  topk_error error;
  topk_layer* layer;
  topk_workspace* workspace;
  CHECK_OK(topk_layer_borrow(&weights, &layer, &error), error);
  CHECK_OK(topk_workspace_new(1, NULL, &workspace, &error), error);
  topk_query_options options = TOPK_QUERY_OPTIONS_INIT;
  options.k = kFew;
  int loops = 0;
  const topk_executor executor = {&loops, three_threads, run_on_threads};
  topk_build_material material = TOPK_BUILD_MATERIAL_INIT;
  const topk_executor* const executors[] = {NULL, &executor};
  int32_t ids[2][kFew];
  topk_answer answers[2] = {TOPK_ANSWER_INIT, TOPK_ANSWER_INIT};
  for (int n = 0; n < 2; ++n) {
    topk_backend* backend;
    material.executor = executors[n];
    /* A part a dimension. */
    CHECK_OK(topk_build(layer, "greedy-mips", NULL, &material, &backend, &error), error);
    CHECK_OK(topk_query(backend, h, kLongDim, &options, workspace, ids[n], NULL, answers + n, &error), error);
    topk_backend_free(backend);
  }
  CHECK(loops >= 3);
  CHECK(memcmp(ids[0], ids[1], sizeof ids[0]) == 0);
  CHECK(answers[0].log_z == answers[1].log_z && answers[0].screened == answers[1].screened);
  topk_workspace_free(workspace);
  topk_layer_free(layer);
  free(h);
  free(W);
}

static int run_nothing(void* user, size_t parts, size_t threads, topk_loop_body body, const void* of) {
  (void)user, (void)parts, (void)threads, (void)body, (void)of;
  return 0;
}

/* As often as there are parts, but for one of them alone. */
static int run_one_part_again(void* user, size_t parts, size_t threads, topk_loop_body body, const void* of) {
  (void)user, (void)threads;
  for (size_t i = 0; i < parts; ++i) body(of, 0, 0);
  return 0;
}

static int run_all_but_one(void* user, size_t parts, size_t threads, topk_loop_body body, const void* of) {
  (void)user, (void)threads;
  for (size_t part = 1; part < parts; ++part) body(of, part, 0);
  return 0;
}

static int run_and_fail(void* user, size_t parts, size_t threads, topk_loop_body body, const void* of) {
  (void)user, (void)parts, (void)threads, (void)body, (void)of;
  return 1;
}

static int run_on_a_thread_too_many(void* user, size_t parts, size_t threads, topk_loop_body body,
                                    const void* of) {
  (void)user;
  for (size_t part = 0; part < parts; ++part) body(of, part, threads);
  return 0;
}

static int run_a_part_too_many(void* user, size_t parts, size_t threads, topk_loop_body body,
                               const void* of) {
  (void)user, (void)threads;
  for (size_t part = 0; part <= parts; ++part) body(of, part, 0);
  return 0;
}

/* A batch of draws that fails on its way writes nothing and takes no number of the stream that all share. */
static void expect_undrawn(const topk_backend* backend, const float* contexts, topk_workspace* workspace,
                           const char* message) {
  enum { kDraws = 5 };
  topk_error error;
  topk_sampler* samplers[kDraws];
  topk_random* random = NULL;
  topk_random* fresh = NULL;
  CHECK_OK(topk_random_new(3, &random, &error), error);
  CHECK_OK(topk_random_new(3, &fresh, &error), error);
  topk_random* const randoms[kDraws] = {random, random, random, random, random};
  for (size_t i = 0; i < kDraws; ++i) CHECK_OK(topk_sampler_new(NULL, samplers + i, &error), error);
  int32_t ids[kDraws] = {-7, -7, -7, -7, -7};
  topk_flat_tokens tokens = TOPK_FLAT_TOKENS_INIT;
  tokens.ids = ids;
  CHECK_FAILS(
      topk_draw_each(backend, contexts, kDraws, kDim, 0, samplers, randoms, NULL, workspace, &tokens, &error),
      error, TOPK_EXECUTOR_FAILED, message);
  for (size_t i = 0; i < kDraws; ++i) CHECK(ids[i] == -7);
  topk_sampled_token same[2] = {TOPK_SAMPLED_TOKEN_INIT, TOPK_SAMPLED_TOKEN_INIT};
  CHECK_OK(topk_draw(samplers[0], backend, contexts, kDim, random, NULL, &same[0], &error), error);
  CHECK_OK(topk_draw(samplers[1], backend, contexts, kDim, fresh, NULL, &same[1], &error), error);
  CHECK(same[0].id == same[1].id && same[0].log_prob == same[1].log_prob);
  for (size_t i = 0; i < kDraws; ++i) topk_sampler_free(samplers[i]);
  topk_random_free(fresh);
  topk_random_free(random);
}

void test_executors_that_fail(void) {
  problem p = make_problem();
  topk_error error;
  topk_backend* const fused = build(&p, "fused", NULL);
  static const struct {
    int (*run)(void*, size_t, size_t, topk_loop_body, const void*);
    const char* message;
  } kFailing[] = {{run_nothing, "called the body 0 times"},
                  {run_all_but_one, " times for "},
                  {run_one_part_again, "more than once for the same part"},
                  {run_and_fail, "executor.run has failed"},
                  {run_on_a_thread_too_many, "with a part or thread number out of range"},
                  {run_a_part_too_many, "with a part or thread number out of range"}};
  for (size_t i = 0; i < sizeof kFailing / sizeof kFailing[0]; ++i) {
    const topk_executor executor = {NULL, three_threads, kFailing[i].run};
    topk_workspace* workspace = NULL;
    CHECK_OK(topk_workspace_new(0, &executor, &workspace, &error), error);
    int32_t ids[kContexts];
    const topk_flat_answers answers = {sizeof answers, ids, NULL, NULL, NULL};
    CHECK_FAILS(topk_query_batch(fused, p.contexts, kContexts, kDim, 0, NULL, workspace, &answers, &error),
                error, TOPK_EXECUTOR_FAILED, kFailing[i].message);
    expect_undrawn(fused, p.contexts, workspace, kFailing[i].message);
    topk_workspace_free(workspace);
  }
  const topk_executor without_run = {NULL, three_threads, NULL};
  topk_workspace* workspace = NULL;
  CHECK_FAILS(topk_workspace_new(1, &without_run, &workspace, &error), error, TOPK_INVALID_ARGUMENT,
              "executor.run");
  topk_sampler* sampler = NULL;
  topk_cursor* cursor = NULL;
  CHECK_OK(topk_sampler_new(NULL, &sampler, &error), error);
  CHECK_OK(topk_cursor_new(fused, p.contexts, kDim, NULL, &cursor, &error), error);
  CHECK_FAILS(topk_sampler_lend_threads(sampler, 1, &without_run, &error), error, TOPK_INVALID_ARGUMENT,
              "executor.run");
  CHECK_FAILS(topk_sampler_lend_threads(NULL, 1, NULL, &error), error, TOPK_INVALID_ARGUMENT, "sampler");
  CHECK_FAILS(topk_cursor_lend_threads(cursor, 1, &without_run, &error), error, TOPK_INVALID_ARGUMENT,
              "executor.run");
  CHECK_FAILS(topk_cursor_lend_threads(NULL, 1, NULL, &error), error, TOPK_INVALID_ARGUMENT, "cursor");
  topk_cursor_free(cursor);
  topk_sampler_free(sampler);
  topk_backend_free(fused);
  free_problem(&p);
}
