/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h"

void test_version(void) {
  char version[64];
  snprintf(version, sizeof version, "%d.%d.%d", TOPK_VERSION_MAJOR, TOPK_VERSION_MINOR, TOPK_VERSION_PATCH);
  CHECK(strcmp(topk_version(), version) == 0);
  CHECK(strcmp(topk_version(), TOPKSOFTMAX_TEST_VERSION) == 0);
}

/* The logits of all tokens for the first context, by a layer's "fused" backend. */
static void all_logits(const problem* p, topk_layer* layer, float* logits) {
  topk_error error;
  topk_backend* backend;
  CHECK_OK(topk_build(layer, "fused", NULL, NULL, &backend, &error), error);
  CHECK_OK(topk_logits(backend, p->contexts, 1, kDim, 0, NULL, p->workspace, logits, &error), error);
  topk_backend_free(backend);
}

static int near_each_other(const float* a, const float* b, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (!(fabsf(a[i] - b[i]) <= 1e-4F)) return 0;
  }
  return 1;
}

/* One layer in every type, of weights that each of them holds exactly. */
void test_weight_types(void) {
  problem p = make_problem();
  enum { kValues = kVocab * kDim };
  static float full[kValues];
  static uint16_t half[kValues];
  static uint16_t brain[kValues];
  static int8_t bytes[kValues];
  static float scales[kVocab];
  for (size_t i = 0; i < kVocab; ++i) scales[i] = 0x1p-6F;
  for (size_t i = 0; i < kValues; ++i) {
    bytes[i] = (int8_t)(i * 37 % 255 - 127);
    full[i] = (float)bytes[i] * 0x1p-6F;
    half[i] = float16_of(full[i]);
    brain[i] = bfloat16_of(full[i]);
  }
  const void* const stored[] = {full, half, brain, bytes};
  float expected[kVocab];
  for (int type = TOPK_FLOAT32; type <= TOPK_INT8; ++type) {
    topk_weights weights = TOPK_WEIGHTS_INIT;
    weights.data = stored[type];
    weights.type = type;
    weights.vocab = kVocab;
    weights.dim = kDim;
    weights.bias = p.b;
    weights.scales = type == TOPK_INT8 ? scales : NULL;
    topk_layer* layer;
    topk_error error;
    CHECK_OK(topk_layer_borrow(&weights, &layer, &error), error);
    CHECK(topk_layer_vocab(layer) == kVocab && topk_layer_dim(layer) == kDim);
    float found[kVocab];
    all_logits(&p, layer, found);
    if (type == TOPK_FLOAT32) memcpy(expected, found, sizeof found);
    CHECK(near_each_other(found, expected, kVocab));
    topk_layer_free(layer);
  }
  free_problem(&p);
}

void test_strided_rows(void) {
  problem p = make_problem();
  enum { kStride = kDim + 5 };
  float* const apart = allocate(sizeof(float) * kVocab * kStride);
  for (size_t i = 0; i < (size_t)kVocab * kStride; ++i) apart[i] = NAN;
  for (size_t i = 0; i < kVocab; ++i) memcpy(apart + i * kStride, p.W + i * kDim, sizeof(float) * kDim);
  topk_weights weights = TOPK_WEIGHTS_INIT;
  weights.data = apart;
  weights.vocab = kVocab;
  weights.dim = kDim;
  weights.stride = kStride;
  weights.bias = p.b;
  topk_layer* layer;
  topk_error error;
  CHECK_OK(topk_layer_borrow(&weights, &layer, &error), error);
  float expected[kVocab];
  float found[kVocab];
  all_logits(&p, p.layer, expected);
  all_logits(&p, layer, found);
  CHECK(memcmp(expected, found, sizeof found) == 0);
  topk_layer_free(layer);
  free(apart);
  free_problem(&p);
}

void test_transforms(void) {
  problem p = make_problem();
  topk_error error;
  float products[kVocab];
  float logits[kVocab];
  all_logits(&p, p.layer, products);
  topk_layer* capped;
  CHECK_OK(topk_layer_with_transform(p.layer, 0.5F, 2.0F, &capped, &error), error);
  all_logits(&p, capped, logits);
  for (size_t i = 0; i < kVocab; ++i) {
    CHECK(fabs(logits[i] - 2.0 * tanh(0.5 * products[i] / 2.0)) < 1e-5);
  }
  topk_layer* const untouched = capped;
  CHECK_FAILS(topk_layer_with_transform(p.layer, 0.0F, 0.0F, &capped, &error), error, TOPK_ERROR,
              "scale of the logits is 0");
  CHECK_FAILS(topk_layer_with_transform(p.layer, 1.0F, NAN, &capped, &error), error, TOPK_ERROR,
              "soft cap is NaN");
  CHECK_FAILS(topk_layer_with_transform(NULL, 1.0F, 0.0F, &capped, &error), error, TOPK_INVALID_ARGUMENT,
              "layer is a null pointer");
  CHECK(capped == untouched);
  topk_layer_free(capped);
  free_problem(&p);
}

void test_layers_are_checked(void) {
  problem p = make_problem();
  topk_error error;
  topk_layer* const untouched = p.layer;
  topk_layer* layer = untouched;
  topk_weights weights = TOPK_WEIGHTS_INIT;
  weights.data = p.W;
  weights.vocab = kVocab;
  weights.dim = kDim;
  CHECK_FAILS(topk_layer_borrow(NULL, &layer, &error), error, TOPK_INVALID_ARGUMENT, "weights");
  CHECK_FAILS(topk_layer_borrow(&weights, NULL, &error), error, TOPK_INVALID_ARGUMENT, "layer");
  weights.type = 9;
  CHECK_FAILS(topk_layer_borrow(&weights, &layer, &error), error, TOPK_INVALID_ARGUMENT, "type is 9");
  weights.type = TOPK_FLOAT32;
  weights.data = (const char*)p.W + 1;
  CHECK_FAILS(topk_layer_borrow(&weights, &layer, &error), error, TOPK_INVALID_ARGUMENT, "multiple of 4");
  weights.data = NULL;
  CHECK_FAILS(topk_layer_borrow(&weights, &layer, &error), error, TOPK_ERROR, "null pointer");
  weights.data = p.W;
  weights.stride = kDim - 1;
  CHECK_FAILS(topk_layer_borrow(&weights, &layer, &error), error, TOPK_ERROR, "apart");
  weights.stride = 0;
  weights.vocab = 0;
  CHECK_FAILS(topk_layer_borrow(&weights, &layer, &error), error, TOPK_ERROR, "0 rows");
  weights.vocab = kVocab;
  weights.type = TOPK_INT8;
  CHECK_FAILS(topk_layer_borrow(&weights, &layer, &error), error, TOPK_ERROR, "scale");
  weights.type = TOPK_FLOAT32;
  p.W[4 * kDim + 2] = NAN;
  CHECK_FAILS(topk_layer_borrow(&weights, &layer, &error), error, TOPK_ERROR, "row 4, column 2 is NaN");
  CHECK(topk_layer_borrow(&weights, &layer, NULL) == TOPK_ERROR);
  CHECK(layer == untouched);
  CHECK(topk_layer_vocab(NULL) == 0 && topk_layer_dim(NULL) == 0);
  topk_layer_free(NULL);
  free_problem(&p);
}

void test_head_file(void) {
  topk_error error;
  topk_head_file* file;
  topk_layer* layer;
  CHECK_OK(topk_head_file_open(TOPKSOFTMAX_TEST_HEAD, &file, &error), error);
  CHECK_OK(topk_head_file_layer(file, &layer, &error), error);
  const size_t vocab = topk_layer_vocab(layer);
  const size_t dim = topk_layer_dim(layer);
  CHECK(vocab == 10000 && dim == 200);
  CHECK(topk_head_file_context_count(file, TOPK_TRAIN_CONTEXTS) == 0);
  CHECK(topk_head_file_context_count(file, 7) == 0);
  const size_t count = topk_head_file_context_count(file, TOPK_TEST_CONTEXTS);
  CHECK(count == 4096);
  float* const contexts = allocate(sizeof(float) * count * dim);
  CHECK_OK(topk_head_file_read_contexts(file, TOPK_TEST_CONTEXTS, contexts, &error), error);
  CHECK_FAILS(topk_head_file_read_contexts(file, 7, contexts, &error), error, TOPK_INVALID_ARGUMENT, "7");
  CHECK(topk_head_file_has_counts(file) == 1);
  int64_t* const counts = allocate(sizeof(int64_t) * vocab);
  CHECK_OK(topk_head_file_read_counts(file, counts, &error), error);
  CHECK(counts[1] >= counts[2] && counts[2] >= counts[vocab - 1]);
  topk_head_file_free(file);

  /* The layer lives on without the file. */
  topk_backend* backend;
  topk_build_material material = TOPK_BUILD_MATERIAL_INIT;
  material.counts = counts;
  CHECK_OK(topk_build(layer, "shortlist", "top_frequent=100", &material, &backend, &error), error);
  topk_layer_free(layer);
  topk_workspace* workspace;
  CHECK_OK(topk_workspace_new(1, NULL, &workspace, &error), error);
  int32_t id = -1;
  CHECK_OK(topk_query(backend, contexts, dim, NULL, workspace, &id, NULL, NULL, &error), error);
  CHECK(id >= 0 && id <= 100);
  topk_workspace_free(workspace);
  topk_backend_free(backend);
  free(counts);
  free(contexts);

  CHECK_FAILS(topk_head_file_open("no.safetensors", &file, &error), error, TOPK_ERROR, "cannot open");
  CHECK_FAILS(topk_head_file_open(NULL, &file, &error), error, TOPK_INVALID_ARGUMENT, "path");
  topk_head_file_free(NULL);
}

void test_opened_layer(void) {
  topk_error error;
  topk_layer* layer;
  CHECK_OK(topk_layer_open(TOPKSOFTMAX_TEST_HEAD, &layer, &error), error);
  CHECK(topk_layer_vocab(layer) == 10000 && topk_layer_dim(layer) == 200);
  CHECK(topk_layer_token_of_row(layer) == NULL);
  topk_layer* const untouched = layer;
  CHECK_FAILS(topk_layer_open("no.gguf", &layer, &error), error, TOPK_ERROR, "no.gguf: cannot open");
  CHECK_FAILS(topk_layer_open(NULL, &layer, &error), error, TOPK_INVALID_ARGUMENT, "path");
  CHECK_FAILS(topk_layer_open(TOPKSOFTMAX_TEST_HEAD, NULL, &error), error, TOPK_INVALID_ARGUMENT, "layer");
  CHECK(layer == untouched && topk_layer_token_of_row(NULL) == NULL);
  topk_layer_free(layer);
}

/* A draft's checkpoint: three rows of the two weights 1 0, 2 0 and 3 0, which are tokens 1, 4 and 6. */
static const char* write_draft(void) {
  static const char header[] =
      "{\"lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]},"
      "\"d2t\":{\"dtype\":\"I64\",\"shape\":[3],\"data_offsets\":[24,48]}} ";
  const uint64_t length = sizeof header - 1;
  const float weights[] = {1.0F, 0.0F, 2.0F, 0.0F, 3.0F, 0.0F};
  const int64_t d2t[] = {1, 3, 4};
  const char* const path = temporary_file("draft.safetensors");
  FILE* const file = fopen(path, "wb");
  if (file == NULL) exit(EXIT_FAILURE);
  fwrite(&length, sizeof length, 1, file);
  fwrite(header, 1, sizeof header - 1, file);
  fwrite(weights, sizeof weights, 1, file);
  fwrite(d2t, sizeof d2t, 1, file);
  CHECK(fclose(file) == 0);
  return path;
}

void test_mapped_vocabulary(void) {
  topk_error error;
  topk_layer* layer;
  topk_backend* over_rows;
  topk_backend* mapped;
  topk_workspace* workspace;
  const char* const path = write_draft();
  CHECK_OK(topk_layer_open(path, &layer, &error), error);
  remove(path);
  const int32_t* const tokens = topk_layer_token_of_row(layer);
  CHECK(tokens != NULL && tokens[0] == 1 && tokens[1] == 4 && tokens[2] == 6);
  topk_layer* scaled;
  CHECK_OK(topk_layer_with_transform(layer, 2.0F, 0.0F, &scaled, &error), error);
  CHECK(topk_layer_token_of_row(scaled) != NULL && topk_layer_token_of_row(scaled)[2] == 6);
  topk_layer_free(scaled);

  CHECK_OK(topk_build(layer, "fused", NULL, NULL, &over_rows, &error), error);
  CHECK_OK(topk_map_vocabulary(over_rows, tokens, 3, 8, &mapped, &error), error);
  topk_backend* const untouched = mapped;
  CHECK_FAILS(topk_map_vocabulary(over_rows, tokens, 2, 8, &mapped, &error), error, TOPK_ERROR, "2");
  CHECK_FAILS(topk_map_vocabulary(over_rows, tokens, 3, 6, &mapped, &error), error, TOPK_ERROR, "6");
  CHECK_FAILS(topk_map_vocabulary(untouched, tokens, 3, 8, &mapped, &error), error, TOPK_ERROR, "mapped");
  CHECK_FAILS(topk_map_vocabulary(NULL, tokens, 3, 8, &mapped, &error), error, TOPK_INVALID_ARGUMENT,
              "over_rows");
  CHECK_FAILS(topk_map_vocabulary(over_rows, NULL, 3, 8, &mapped, &error), error, TOPK_INVALID_ARGUMENT,
              "token_of_row");
  CHECK_FAILS(topk_map_vocabulary(over_rows, tokens, 3, 8, NULL, &error), error, TOPK_INVALID_ARGUMENT,
              "mapped");
  CHECK(mapped == untouched);
  topk_backend_free(over_rows);
  topk_layer_free(layer);

  CHECK(strcmp(topk_backend_name(mapped), "mapped:fused") == 0 && topk_backend_vocab(mapped) == 8);
  CHECK_OK(topk_workspace_new(1, NULL, &workspace, &error), error);
  topk_query_options options = TOPK_QUERY_OPTIONS_INIT;
  options.k = 8;
  topk_answer answer = TOPK_ANSWER_INIT;
  const float h[] = {1.0F, 5.0F};
  int32_t ids[8];
  float logits[8];
  CHECK_OK(topk_query(mapped, h, 2, &options, workspace, ids, logits, &answer, &error), error);
  CHECK(answer.count == 3 && ids[0] == 6 && ids[1] == 4 && ids[2] == 1 && logits[0] == 3.0F);
  topk_workspace_free(workspace);
  topk_backend_free(mapped);
}
