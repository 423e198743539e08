/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h"

int failures = 0;

void check(int holds, const char* what, const char* file, int line) {
  if (holds) return;
  fprintf(stderr, "%s:%d: %s does not hold\n", file, line, what);
  ++failures;
}

void check_ok(topk_status status, const topk_error* error, const char* what, const char* file, int line) {
  if (status == TOPK_OK) return;
  fprintf(stderr, "%s:%d: %s\n  returned %d: %s\n", file, line, what, (int)status, error->message);
  exit(EXIT_FAILURE);
}

void check_fails(topk_status found, topk_error* error, topk_status expected, const char* words,
                 const char* what, const char* file, int line) {
  if (found == expected && error->status == expected && strstr(error->message, words) != NULL) {
    memset(error, 0, sizeof *error);
    return;
  }
  fprintf(stderr, "%s:%d: %s\n  returned %d: %s\n  expected %d: %s\n", file, line, what, (int)found,
          found == TOPK_OK ? "" : error->message, (int)expected, words);
  ++failures;
}

void* allocate(size_t bytes) {
  void* const memory = malloc(bytes);
  if (memory == NULL) exit(EXIT_FAILURE);
  return memory;
}

const char* temporary_file(const char* name) {
  static char path[4096];
  snprintf(path, sizeof path, "c99_test-%s", name);
  return path;
}

void fill(float* values, size_t count, unsigned seed, float scale) {
  uint64_t state = seed;
  for (size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    values[i] = scale * ((float)(state >> 40) * 0x1p-23F - 1.0F);
  }
}

problem make_problem(void) {
  enum { kTopics = 12 };
  problem p;
  p.W = allocate(sizeof(float) * kVocab * kDim);
  p.b = allocate(sizeof(float) * kVocab);
  p.contexts = allocate(sizeof(float) * kContexts * kDim);
  fill(p.W, (size_t)kVocab * kDim, 1, 0.6F);
  fill(p.b, kVocab, 2, 1.0F);
  float topics[kTopics * kDim];
  fill(topics, (size_t)kTopics * kDim, 3, 2.0F);
  fill(p.contexts, (size_t)kContexts * kDim, 4, 0.4F);
  for (size_t i = 0; i < kContexts; ++i) {
    for (size_t j = 0; j < kDim; ++j) p.contexts[i * kDim + j] += topics[(i % kTopics) * kDim + j];
  }
  topk_weights weights = TOPK_WEIGHTS_INIT;
  weights.data = p.W;
  weights.vocab = kVocab;
  weights.dim = kDim;
  weights.bias = p.b;
  topk_error error;
  CHECK_OK(topk_layer_borrow(&weights, &p.layer, &error), error);
  CHECK_OK(topk_workspace_new(1, NULL, &p.workspace, &error), error);
  return p;
}

void free_problem(problem* p) {
  topk_workspace_free(p->workspace);
  topk_layer_free(p->layer);
  free(p->contexts);
  free(p->b);
  free(p->W);
}

topk_backend* build(const problem* p, const char* name, const char* options) {
  topk_build_material material = TOPK_BUILD_MATERIAL_INIT;
  material.contexts = p->contexts;
  material.context_count = kContexts;
  topk_backend* backend = NULL;
  topk_error error;
  CHECK_OK(topk_build(p->layer, name, options, &material, &backend, &error), error);
  return backend;
}

uint16_t bfloat16_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)(bits >> 16);
}

uint16_t float16_of(float value) {
  if (value == 0.0F) return 0;
  int exponent = 0;
  const float fraction = frexpf(fabsf(value), &exponent); /* value = ± fraction · 2^exponent, from 0.5 on */
  const unsigned sign = value < 0.0F ? 0x8000U : 0U;
  return (uint16_t)(sign | ((unsigned)(exponent + 14) << 10) | ((unsigned)(fraction * 2048.0F) & 0x3FFU));
}
