/* SPDX-License-Identifier: Apache-2.0 */
/* The tests of the C interface: a function each, named on the command line, and what they share. */
#ifndef TOPKSOFTMAX_TESTS_C_TESTS_H
#define TOPKSOFTMAX_TESTS_C_TESTS_H

#include <stddef.h>
#include <stdint.h>

#include "topksoftmax/c/topksoftmax.h"

/* layers.c */
void test_version(void);
void test_weight_types(void);
void test_strided_rows(void);
void test_transforms(void);
void test_layers_are_checked(void);
void test_head_file(void);
void test_opened_layer(void);
void test_mapped_vocabulary(void);
/* backends.c */
void test_backends_agree(void);
void test_save_and_load(void);
void test_list_of_backends(void);
void test_build_errors(void);
void test_progress(void);
/* queries.c */
void test_reference(void);
void test_batch(void);
void test_options_of_each(void);
void test_masks_and_biases(void);
void test_masks_of_32_bits(void);
void test_logits(void);
void test_logits_of(void);
void test_query_errors(void);
void test_struct_sizes(void);
void test_out_of_memory(void);
void test_messages_are_cut(void);
/* log_z.c */
void test_log_z(void);
void test_log_z_errors(void);
/* penalties.c */
void test_penalties(void);
void test_penalties_errors(void);
/* cursor.c */
void test_cursor(void);
void test_cursor_errors(void);
/* sampling.c */
void test_sampling(void);
void test_sampled_log_z(void);
void test_draws_of_a_backend(void);
void test_draws_of_a_batch(void);
void test_sampling_errors(void);
/* executors.c */
void test_executors(void);
void test_draws_on_an_executor(void);
void test_cursor_on_an_executor(void);
void test_build_on_an_executor(void);
void test_loops_of_many_parts(void);
void test_executors_that_fail(void);

/* Checks that did not hold. */
extern int failures;

/* A condition that holds, or the test has failed. */
#define CHECK(condition) check((condition), #condition, __FILE__, __LINE__)
void check(int holds, const char* what, const char* file, int line);

/* A call that succeeds: CHECK_OK(topk_query(…, &error), error). Otherwise the program ends. */
#define CHECK_OK(call, error) check_ok((call), &(error), #call, __FILE__, __LINE__)
void check_ok(topk_status status, const topk_error* error, const char* what, const char* file, int line);

/* A call that fails so, and says why: CHECK_FAILS(call, error, TOPK_ERROR, "NaN"). */
#define CHECK_FAILS(call, error, status, words) \
  check_fails((call), &(error), status, words, #call, __FILE__, __LINE__)
void check_fails(topk_status found, topk_error* error, topk_status expected, const char* words,
                 const char* what, const char* file, int line);

/* Memory that the test frees; the program ends where there is none. */
void* allocate(size_t bytes);

/* A name in the folder that the test may write to, until it is called again. */
const char* temporary_file(const char* name);

/* Values between −scale and scale. */
void fill(float* values, size_t count, unsigned seed, float scale);

enum { kVocab = 600, kDim = 24, kContexts = 400 };

/* A layer of random weights, and contexts of a few topics with noise around them. */
typedef struct problem {
  float* W;        /* [kVocab×kDim] */
  float* b;        /* [kVocab] */
  float* contexts; /* [kContexts×kDim] */
  topk_layer* layer;
  topk_workspace* workspace; /* of one thread */
} problem;

problem make_problem(void);
void free_problem(problem* p);

/* A backend of the problem's layer, built from its contexts. */
topk_backend* build(const problem* p, const char* name, const char* options);

/* A weight as it is stored: exact for what these types have. */
uint16_t float16_of(float value);
uint16_t bfloat16_of(float value);

#endif
