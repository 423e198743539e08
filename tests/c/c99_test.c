/* SPDX-License-Identifier: Apache-2.0 */
/* c99_test NAME... runs these tests of the C interface; without names all of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests.h"

static const struct {
  const char* name;
  void (*run)(void);
} kTests[] = {
    {"version", test_version},
    {"weight_types", test_weight_types},
    {"strided_rows", test_strided_rows},
    {"transforms", test_transforms},
    {"layers_are_checked", test_layers_are_checked},
    {"head_file", test_head_file},
    {"opened_layer", test_opened_layer},
    {"mapped_vocabulary", test_mapped_vocabulary},
    {"backends_agree", test_backends_agree},
    {"save_and_load", test_save_and_load},
    {"list_of_backends", test_list_of_backends},
    {"build_errors", test_build_errors},
    {"progress", test_progress},
    {"reference", test_reference},
    {"batch", test_batch},
    {"options_of_each", test_options_of_each},
    {"masks_and_biases", test_masks_and_biases},
    {"masks_of_32_bits", test_masks_of_32_bits},
    {"logits", test_logits},
    {"logits_of", test_logits_of},
    {"query_errors", test_query_errors},
    {"struct_sizes", test_struct_sizes},
    {"out_of_memory", test_out_of_memory},
    {"messages_are_cut", test_messages_are_cut},
    {"log_z", test_log_z},
    {"log_z_errors", test_log_z_errors},
    {"penalties", test_penalties},
    {"penalties_errors", test_penalties_errors},
    {"cursor", test_cursor},
    {"cursor_errors", test_cursor_errors},
    {"sampling", test_sampling},
    {"sampled_log_z", test_sampled_log_z},
    {"draws_of_a_backend", test_draws_of_a_backend},
    {"draws_of_a_batch", test_draws_of_a_batch},
    {"sampling_errors", test_sampling_errors},
    {"executors", test_executors},
    {"draws_on_an_executor", test_draws_on_an_executor},
    {"cursor_on_an_executor", test_cursor_on_an_executor},
    {"build_on_an_executor", test_build_on_an_executor},
    {"loops_of_many_parts", test_loops_of_many_parts},
    {"executors_that_fail", test_executors_that_fail},
};

static int is_chosen(const char* name, int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], name) == 0) return 1;
  }
  return argc == 1;
}

int main(int argc, char** argv) {
  int ran = 0;
  for (size_t i = 0; i < sizeof kTests / sizeof kTests[0]; ++i) {
    if (!is_chosen(kTests[i].name, argc, argv)) continue;
    const int before = failures;
    kTests[i].run();
    printf("%-24s %s\n", kTests[i].name, failures == before ? "passed" : "FAILED");
    ++ran;
  }
  if (argc > 1 && ran != argc - 1) {
    fprintf(stderr, "there is no test of that name\n");
    return EXIT_FAILURE;
  }
  return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
