/* SPDX-License-Identifier: Apache-2.0 */
/* A head from a file, its five most probable tokens, proven, and a few that are drawn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <topksoftmax/c/topksoftmax.h>

static void require(topk_status status, const topk_error* error) {
  if (status == TOPK_OK) return;
  fprintf(stderr, "quickstart: %s\n", error->message);
  exit(EXIT_FAILURE);
}

int main(int argc, char** argv) {
  const char* const path = argc > 1 ? argv[1] : "examples/data/novels-lm.safetensors";
  if (argc > 2 || path[0] == '-') {
    const int asked = argc == 2 && strcmp(path, "--help") == 0;
    fprintf(asked ? stdout : stderr, "usage: quickstart_c [HEAD FILE WITH contexts.test]\n");
    return asked ? EXIT_SUCCESS : EXIT_FAILURE;
  }
  topk_error error;

  /* The output layer of a language model, and contexts that the model has produced. */
  topk_head_file* file;
  topk_layer* layer;
  require(topk_head_file_open(path, &file, &error), &error);
  require(topk_head_file_layer(file, &layer, &error), &error);
  const size_t dim = topk_layer_dim(layer);
  const size_t count = topk_head_file_context_count(file, TOPK_TEST_CONTEXTS);
  if (count < 2) {
    fprintf(stderr, "quickstart: %s: has %zu contexts in contexts.test; at least 2 are needed\n", path,
            count);
    return EXIT_FAILURE;
  }
  float* const contexts = malloc(count * dim * sizeof(float));
  if (contexts == NULL) {
    fprintf(stderr, "quickstart: not enough memory for %zu contexts\n", count);
    return EXIT_FAILURE;
  }
  require(topk_head_file_read_contexts(file, TOPK_TEST_CONTEXTS, contexts, &error), &error);

  /* Learns from the first half of them; is asked about the others. */
  topk_build_material material = TOPK_BUILD_MATERIAL_INIT;
  material.contexts = contexts;
  material.context_count = count / 2;
  topk_backend* backend;
  require(topk_build(layer, "certified", "expected_k=5", &material, &backend, &error), &error);
  const float* const h = contexts + (count - 1) * dim;

  /* One workspace a thread: a warm query allocates nothing. */
  topk_workspace* workspace;
  require(topk_workspace_new(1, NULL, &workspace, &error), &error);
  topk_query_options options = TOPK_QUERY_OPTIONS_INIT;
  options.k = 5;
  int32_t ids[5];
  float logits[5];
  topk_answer answer = TOPK_ANSWER_INIT;
  require(topk_query(backend, h, dim, &options, workspace, ids, logits, &answer, &error), &error);
  printf("%zu tokens, %zu dimensions; the most probable ones after the last context:\n",
         topk_layer_vocab(layer), dim);
  for (size_t i = 0; i < answer.count; ++i) {
    const double logit = logits[i];
    printf("  token %5d   logit %6.3f   log-probability %6.3f, from %6.3f to %6.3f\n", (int)ids[i], logit,
           logit - answer.log_z, logit - answer.log_z_high, logit - answer.log_z_low);
  }
  printf("%s; %zu of %zu rows of W were read whole\n",
         answer.certified ? "proven to be the exact top 5" : "approximate", answer.candidates,
         topk_layer_vocab(layer));

  /* Tokens drawn from the nucleus of 90 % of the whole vocabulary's distribution. */
  topk_sampling_options sampling = TOPK_SAMPLING_OPTIONS_INIT;
  sampling.top_p = 0.9;
  topk_sampler* sampler;
  topk_random* random;
  require(topk_sampler_new(&sampling, &sampler, &error), &error);
  require(topk_random_new(1, &random, &error), &error);
  printf("drawn:");
  for (int i = 0; i < 10; ++i) {
    topk_sampled_token token = TOPK_SAMPLED_TOKEN_INIT;
    require(topk_draw(sampler, backend, h, dim, random, NULL, &token, &error), &error);
    printf(" %d", (int)token.id);
  }
  printf("\n");

  topk_random_free(random);
  topk_sampler_free(sampler);
  topk_workspace_free(workspace);
  topk_backend_free(backend);
  topk_layer_free(layer);
  topk_head_file_free(file);
  free(contexts);
  return EXIT_SUCCESS;
}
