/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h"

enum { kK = 5 };

/* How many of `asked`'s tokens for the contexts are those of `exact`, at the same place, with the same bits
   for logits. */
static double agreement(const problem* p, const topk_backend* asked, const topk_backend* exact,
                        size_t effort) {
  topk_query_options options = TOPK_QUERY_OPTIONS_INIT;
  options.k = kK;
  size_t same = 0;
  for (size_t i = 0; i < kContexts; ++i) {
    const float* const h = p->contexts + i * kDim;
    int32_t ids[2][kK];
    float logits[2][kK];
    topk_error error;
    options.effort = effort;
    CHECK_OK(topk_query(asked, h, kDim, &options, p->workspace, ids[0], logits[0], NULL, &error), error);
    options.effort = 0;
    CHECK_OK(topk_query(exact, h, kDim, &options, p->workspace, ids[1], logits[1], NULL, &error), error);
    for (size_t j = 0; j < kK; ++j) same += ids[0][j] == ids[1][j] && logits[0][j] == logits[1][j];
  }
  return (double)same / (kContexts * kK);
}

void test_backends_agree(void) {
  problem p = make_problem();
  topk_backend* const fused = build(&p, "fused", NULL);
  static const struct {
    const char* name;
    const char* options;
    double least; /* as it is built; with full effort all of these are exact */
  } kBuilt[] = {{"certified", "", 1.0},
                {"l2s", "clusters=8 budget=150\nrounds=2", 0.8},
                {"fgd", "  M=8\tef_search=20 ", 0.5},
                {"certify:l2s-kmeans", "clusters=8", 1.0}};
  for (size_t i = 0; i < sizeof kBuilt / sizeof kBuilt[0]; ++i) {
    topk_backend* const backend = build(&p, kBuilt[i].name, kBuilt[i].options);
    CHECK(strcmp(topk_backend_name(backend), kBuilt[i].name) == 0);
    CHECK(topk_backend_vocab(backend) == kVocab && topk_backend_dim(backend) == kDim);
    CHECK(topk_backend_index_bytes(backend) > 0);
    CHECK(topk_backend_certifies(backend) == (kBuilt[i].least == 1.0));
    const double found = agreement(&p, backend, fused, 0);
    if (found < kBuilt[i].least) fprintf(stderr, "%s: %g\n", kBuilt[i].name, found);
    CHECK(found >= kBuilt[i].least);
    CHECK(agreement(&p, backend, fused, TOPK_FULL_EFFORT) == 1.0);
    topk_backend_free(backend);
  }
  CHECK(topk_backend_certifies(fused) == 1 && topk_backend_index_bytes(fused) == 0);
  CHECK(topk_backend_name(NULL) == NULL && topk_backend_vocab(NULL) == 0 && topk_backend_dim(NULL) == 0);
  double median = 7.0;
  CHECK(topk_backend_log_z_error(fused, &median, NULL) == 0 && median == 7.0);
  CHECK(topk_backend_index_bytes(NULL) == 0 && topk_backend_certifies(NULL) == 0);
  CHECK(topk_backend_log_z_error(NULL, NULL, NULL) == 0);
  topk_backend_free(fused);
  topk_backend_free(NULL);
  free_problem(&p);
}

void test_save_and_load(void) {
  problem p = make_problem();
  topk_error error;
  const char* const path = temporary_file("index");
  topk_backend* const saved = build(&p, "l2s", "clusters=8 budget=60 rounds=1");
  CHECK_OK(topk_save(saved, path, &error), error);
  CHECK_OK(topk_verify_index(path, &error), error);
  topk_backend* loaded = NULL;
  CHECK_OK(topk_load(path, p.layer, &loaded, &error), error);
  CHECK(strcmp(topk_backend_name(loaded), "l2s") == 0);
  CHECK(agreement(&p, loaded, saved, 0) == 1.0);
  topk_backend_free(loaded);
  topk_backend* copied = NULL;
  CHECK_OK(topk_load_copy(path, p.layer, &copied, &error), error);
  CHECK_OK(topk_verify_layer(path, p.layer, &error), error);

  topk_weights weights = TOPK_WEIGHTS_INIT; /* without the bias */
  weights.data = p.W;
  weights.vocab = kVocab;
  weights.dim = kDim;
  topk_layer* other = NULL;
  CHECK_OK(topk_layer_borrow(&weights, &other, &error), error);
  topk_backend* const untouched = saved;
  loaded = untouched;
  CHECK_FAILS(topk_load(path, other, &loaded, &error), error, TOPK_ERROR, "another layer");
  CHECK_FAILS(topk_verify_layer(path, other, &error), error, TOPK_ERROR, "another layer");
  CHECK_FAILS(topk_verify_layer(path, NULL, &error), error, TOPK_INVALID_ARGUMENT, "layer");
  CHECK_FAILS(topk_load_copy("no.index", p.layer, &loaded, &error), error, TOPK_ERROR, "cannot open");
  CHECK_FAILS(topk_load("no.index", p.layer, &loaded, &error), error, TOPK_ERROR, "cannot open");
  CHECK_FAILS(topk_load(NULL, p.layer, &loaded, &error), error, TOPK_INVALID_ARGUMENT, "path");
  CHECK_FAILS(topk_load(path, NULL, &loaded, &error), error, TOPK_INVALID_ARGUMENT, "layer");
  CHECK_FAILS(topk_load(path, p.layer, NULL, &error), error, TOPK_INVALID_ARGUMENT, "backend");
  CHECK(loaded == untouched);
  CHECK_FAILS(topk_save(saved, "no folder/index", &error), error, TOPK_ERROR, "no folder");
  CHECK_FAILS(topk_save(NULL, path, &error), error, TOPK_INVALID_ARGUMENT, "backend");

  /* A byte that is changed in the middle of the tensors, which loading need not notice. */
  FILE* const file = fopen(path, "r+b");
  CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
  const long middle = ftell(file) / 2;
  CHECK(fseek(file, middle, SEEK_SET) == 0);
  const int changed = fgetc(file) ^ 1;
  CHECK(fseek(file, middle, SEEK_SET) == 0 && fputc(changed, file) != EOF && fclose(file) == 0);
  CHECK_FAILS(topk_verify_index(path, &error), error, TOPK_ERROR, "checksum");
  /* Nothing is left of the file, which matters to those alone that use it where it lies. */
  CHECK(fclose(fopen(path, "w")) == 0);
  CHECK(agreement(&p, copied, saved, 0) == 1.0);
  topk_backend_free(copied);
  CHECK(remove(path) == 0);
  topk_backend_free(saved);
  topk_layer_free(other);
  free_problem(&p);
}

void test_list_of_backends(void) {
  const size_t bytes = topk_list_backends(NULL, 0);
  CHECK(bytes > 1);
  char* const text = allocate(bytes);
  CHECK(topk_list_backends(text, bytes) == bytes);
  CHECK(strlen(text) == bytes - 1);
  CHECK(strstr(text, "l2s\n") != NULL && strstr(text, "clusters=100") != NULL);
  CHECK(strstr(text, "certified\n") != NULL);
  char cut[8];
  CHECK(topk_list_backends(cut, sizeof cut) == bytes);
  CHECK(strlen(cut) == sizeof cut - 1 && strncmp(cut, text, sizeof cut - 1) == 0);
  free(text);
}

void test_build_errors(void) {
  problem p = make_problem();
  topk_error error;
  topk_build_material material = TOPK_BUILD_MATERIAL_INIT;
  topk_backend* const untouched = build(&p, "fused", NULL);
  topk_backend* backend = untouched;
#define BUILD(name, options) topk_build(p.layer, name, options, &material, &backend, &error)
  CHECK_FAILS(BUILD("no-backend", NULL), error, TOPK_ERROR, "there is no backend \"no-backend\"");
  CHECK_FAILS(BUILD("l2s", "clusters=8"), error, TOPK_ERROR, "no training contexts");
  material.contexts = p.contexts;
  CHECK_FAILS(BUILD("l2s", NULL), error, TOPK_INVALID_ARGUMENT, "contexts");
  material.context_count = kContexts;
  CHECK_FAILS(BUILD("l2s", "cluster=8"), error, TOPK_ERROR, "no parameter \"cluster\"");
  CHECK_FAILS(BUILD("l2s", "clusters=many"), error, TOPK_ERROR, "many");
  CHECK_FAILS(BUILD("l2s", "clusters=0"), error, TOPK_ERROR, "at least 1");
  CHECK_FAILS(BUILD("l2s", "clusters"), error, TOPK_ERROR, "\"clusters\" is not an option");
  CHECK_FAILS(BUILD("l2s", "=8"), error, TOPK_ERROR, "is not an option");
  CHECK_FAILS(BUILD("l2s", "clusters=8 clusters=9"), error, TOPK_ERROR, "twice");
  CHECK_FAILS(BUILD(NULL, NULL), error, TOPK_INVALID_ARGUMENT, "name");
  material.context_stride = kDim - 1;
  CHECK_FAILS(BUILD("l2s", NULL), error, TOPK_INVALID_ARGUMENT, "context_stride");
  material.context_stride = 0;
  p.contexts[kDim] = HUGE_VALF;
  CHECK_FAILS(BUILD("l2s", NULL), error, TOPK_ERROR, "context 1");
#undef BUILD
  CHECK_FAILS(topk_build(NULL, "l2s", NULL, NULL, &backend, &error), error, TOPK_INVALID_ARGUMENT, "layer");
  CHECK_FAILS(topk_build(p.layer, "l2s", NULL, NULL, NULL, &error), error, TOPK_INVALID_ARGUMENT, "backend");
  CHECK(backend == untouched);
  topk_backend_free(untouched);
  free_problem(&p);
}

typedef struct told {
  int times;
  int most; /* after which it is enough */
  int in_order;
  double done;
} told;

static int listen(void* user, const char* step, double done) {
  told* const all = user;
  all->in_order = all->in_order && strlen(step) > 0 && done >= all->done && done <= 1.0;
  all->done = done;
  return ++all->times >= all->most;
}

void test_progress(void) {
  problem p = make_problem();
  topk_error error;
  topk_build_material material = TOPK_BUILD_MATERIAL_INIT;
  material.contexts = p.contexts;
  material.context_count = kContexts;
  told all = {0, 1000000, 1, 0.0};
  material.progress = listen;
  material.progress_user = &all;
  topk_backend* backend = NULL;
  CHECK_OK(topk_build(p.layer, "l2s", "clusters=8 rounds=2", &material, &backend, &error), error);
  CHECK(all.times > 1 && all.in_order);
  topk_backend_free(backend);

  backend = NULL;
  all = (told){0, 2, 1, 0.0};
  CHECK_FAILS(topk_build(p.layer, "l2s", "clusters=8 rounds=2", &material, &backend, &error), error,
              TOPK_STOPPED, "stop");
  CHECK(all.times == 2 && backend == NULL);
  free_problem(&p);
}
