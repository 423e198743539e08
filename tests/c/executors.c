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

/* A batch and single queries, on threads of ours: the same bits as on one. */
void test_executors(void) {
  float* const W = allocate(sizeof(float) * kLargeVocab * kLargeDim);
  fill(W, (size_t)kLargeVocab * kLargeDim, 8, 0.5F);
  topk_weights weights = TOPK_WEIGHTS_INIT;
  weights.data = W;
  weights.vocab = kLargeVocab;
  weights.dim = kLargeDim;
  enum { kBatch = 40 };
  float contexts[kBatch * kLargeDim];
  fill(contexts, (size_t)kBatch * kLargeDim, 9, 2.0F);

  int loops = 0;
  const topk_executor executor = {&loops, three_threads, run_on_threads};
  topk_error error;
  topk_layer* layer;
  topk_workspace* one;
  topk_workspace* all;
  CHECK_OK(topk_layer_borrow(&weights, &layer, &error), error);
  CHECK_OK(topk_workspace_new(1, NULL, &one, &error), error);
  CHECK_OK(topk_workspace_new(0, &executor, &all, &error), error);
  topk_backend* backend;
  CHECK_OK(topk_build(layer, "quantized", NULL, NULL, &backend, &error), error);

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
  topk_backend_free(backend);
  topk_workspace_free(all);
  topk_workspace_free(one);
  topk_layer_free(layer);
  free(W);
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
    topk_workspace_free(workspace);
  }
  const topk_executor without_run = {NULL, three_threads, NULL};
  topk_workspace* workspace = NULL;
  CHECK_FAILS(topk_workspace_new(1, &without_run, &workspace, &error), error, TOPK_INVALID_ARGUMENT,
              "executor.run");
  topk_backend_free(fused);
  free_problem(&p);
}
