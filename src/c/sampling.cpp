// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/sampling.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "c/batches.hpp"
#include "c/executor.hpp"
#include "c/guard.hpp"
#include "c/handles.hpp"
#include "c/workspace.hpp"
#include "topksoftmax/c/topksoftmax.h"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/decoding/backend_sampler.hpp"
#include "topksoftmax/decoding/draw_each.hpp"
#include "topksoftmax/decoding/random_stream.hpp"
#include "topksoftmax/decoding/sampling_options.hpp"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"

using namespace topksoftmax;

struct topk_random {
  RandomStream stream;
};

struct topk_sampler {
  explicit topk_sampler(const SamplingOptions& options) : of_layer(options), of_backend(options) {}

  Sampler of_layer;
  BackendSampler of_backend;
  c::LentThreads threads = {};
  std::vector<TokenBias> biases = {};
};

namespace {

static_assert(static_cast<int>(SamplingStep::temperature) == TOPK_STEP_TEMPERATURE);
static_assert(static_cast<int>(SamplingStep::top_n_sigma) == TOPK_STEP_TOP_N_SIGMA);
static_assert(static_cast<int>(SamplingStep::top_k) == TOPK_STEP_TOP_K);
static_assert(static_cast<int>(SamplingStep::typical_p) == TOPK_STEP_TYPICAL_P);
static_assert(static_cast<int>(SamplingStep::top_p) == TOPK_STEP_TOP_P);
static_assert(static_cast<int>(SamplingStep::min_p) == TOPK_STEP_MIN_P);
static_assert(static_cast<int>(SamplingStep::xtc) == TOPK_STEP_XTC);

SamplingOrder order_of_steps(const topk_sampling_options& given) {
  SamplingOrder order = SamplingOrder::hugging_face;
  c::required(given.steps, "steps");
  if (given.step_count != order.steps.size()) {
    throw std::invalid_argument("sampling: step_count is " + std::to_string(given.step_count) +
                                "; there are " + std::to_string(order.steps.size()) + " steps");
  }
  std::transform(given.steps, given.steps + given.step_count, order.steps.begin(),
                 [](std::uint8_t step) { return static_cast<SamplingStep>(step); });
  return order;
}

SamplingOrder order_of(const topk_sampling_options& given) {
  if (given.order == TOPK_ORDER_OF_STEPS) return order_of_steps(given);
  if (given.order > TOPK_ORDER_OF_STEPS) {
    throw std::invalid_argument(
        "sampling: order is " + std::to_string(given.order) +
        "; it must be TOPK_ORDER_HUGGING_FACE, TOPK_ORDER_LLAMA_CPP or TOPK_ORDER_OF_STEPS");
  }
  if (given.steps != nullptr)
    throw std::invalid_argument("sampling: steps are given without TOPK_ORDER_OF_STEPS");
  return given.order == TOPK_ORDER_LLAMA_CPP ? SamplingOrder::llama_cpp : SamplingOrder::hugging_face;
}

SamplingOptions options_of(const topk_sampling_options& given) {
  return {.temperature = given.temperature,
          .top_k = given.top_k,
          .top_p = given.top_p,
          .min_p = given.min_p,
          .typical_p = given.typical_p,
          .top_n_sigma = given.top_n_sigma,
          .xtc_probability = given.xtc_probability,
          .xtc_threshold = given.xtc_threshold,
          .order = order_of(given),
          .log_z_error = given.log_z_error};
}

/// Draws by one of a sampler's two.
template <class By>
topk_status draw_by(By topk_sampler::*by, topk_sampler* sampler, const topk_backend* backend, const float* h,
                    size_t dim, topk_random* random, const topk_query_options* query,
                    topk_sampled_token* token, topk_error* error) {
  return c::guarded(error, [&] {
    topk_sampler& memory = c::required(sampler, "sampler");
    const TopKSoftmax& asked = *c::required(backend, "backend").backend;
    topk_random& stream = c::required(random, "random");
    c::required(h, "h");
    c::check_size(c::required(token, "token"), "token");
    RandomStream after = stream.stream;  // a draw that fails takes no number
    const SampledToken drawn =
        (memory.*by).draw(asked, {h, dim}, after, c::options_of(query, memory.biases), memory.threads);
    stream.stream = after;
    c::store({.struct_size = sizeof(topk_sampled_token),
              .log_prob = drawn.log_prob,
              .log_prob_low = drawn.log_prob_low,
              .log_prob_high = drawn.log_prob_high,
              .logit = drawn.logit,
              .id = drawn.id},
             *token);
  });
}

/// Where tokens go. Throws std::invalid_argument for those of contexts that have no ids.
topk_flat_tokens flat_tokens(const topk_flat_tokens* given, std::size_t batch) {
  c::required(given, "tokens");
  const topk_flat_tokens out = c::known(given, TOPK_FLAT_TOKENS_INIT, "tokens");
  if (batch != 0) c::required(out.ids, "tokens.ids");
  return out;
}

void store(const SampledToken& token, std::size_t i, const topk_flat_tokens& out) {
  out.ids[i] = token.id;
  if (out.logits != nullptr) out.logits[i] = token.logit;
  if (out.log_prob != nullptr) out.log_prob[i] = token.log_prob;
  if (out.log_prob_low != nullptr) out.log_prob_low[i] = token.log_prob_low;
  if (out.log_prob_high != nullptr) out.log_prob_high[i] = token.log_prob_high;
}

/// Streams that have given no number unless they are kept.
class GivenBack {
 public:
  explicit GivenBack(std::span<topk_random* const> streams) : streams_(streams) {
    for (const topk_random* const stream : streams) before_.push_back(stream->stream);
  }
  ~GivenBack() {
    for (std::size_t i = 0; i < before_.size(); ++i) streams_[i]->stream = before_[i];
  }
  GivenBack(const GivenBack&) = delete;
  GivenBack& operator=(const GivenBack&) = delete;

  void keep() { before_.clear(); }

 private:
  std::span<topk_random* const> streams_;
  std::vector<RandomStream> before_;
};

/// A request for each context. Throws std::invalid_argument where there is no sampler or no stream.
std::vector<DrawRequest> requests_of(std::span<topk_sampler* const> samplers,
                                     std::span<topk_random* const> randoms,
                                     std::span<const QueryOptions> queries) {
  std::vector<DrawRequest> requests;
  for (std::size_t i = 0; i < samplers.size(); ++i) {
    topk_sampler& sampler = c::required(samplers[i], ("samplers[" + std::to_string(i) + "]").c_str());
    topk_random& random = c::required(randoms[i], ("randoms[" + std::to_string(i) + "]").c_str());
    requests.push_back({.sampler = &sampler.of_layer,
                        .random = &random.stream,
                        .query = queries.empty() ? QueryOptions() : queries[i]});
  }
  return requests;
}

}  // namespace

topk_status topk_random_new(uint64_t seed, topk_random** random, topk_error* error) {
  return c::guarded(error, [&] {
    c::required(random, "random");
    *random = new topk_random{RandomStream(seed)};
  });
}

void topk_random_free(topk_random* random) {
  delete random;
}

topk_status topk_sampler_new(const topk_sampling_options* options, topk_sampler** sampler,
                             topk_error* error) {
  return c::guarded(error, [&] {
    c::required(sampler, "sampler");
    *sampler = new topk_sampler(options_of(c::known(options, TOPK_SAMPLING_OPTIONS_INIT, "options")));
  });
}

void topk_sampler_free(topk_sampler* sampler) {
  delete sampler;
}

topk_status topk_sampler_lend_threads(topk_sampler* sampler, size_t threads, const topk_executor* executor,
                                      topk_error* error) {
  return c::guarded(error, [&] {
    c::required(sampler, "sampler");
    sampler->threads = c::LentThreads(threads, executor);
  });
}

topk_status topk_draw(topk_sampler* sampler, const topk_backend* backend, const float* h, size_t dim,
                      topk_random* random, const topk_query_options* query, topk_sampled_token* token,
                      topk_error* error) {
  return draw_by(&topk_sampler::of_layer, sampler, backend, h, dim, random, query, token, error);
}

topk_status topk_draw_own(topk_sampler* sampler, const topk_backend* backend, const float* h, size_t dim,
                          topk_random* random, const topk_query_options* query, topk_sampled_token* token,
                          topk_error* error) {
  return draw_by(&topk_sampler::of_backend, sampler, backend, h, dim, random, query, token, error);
}

topk_status topk_draw_each(const topk_backend* backend, const float* contexts, size_t batch, size_t dim,
                           size_t stride, topk_sampler* const* samplers, topk_random* const* randoms,
                           const topk_query_options* const* queries, topk_workspace* workspace,
                           const topk_flat_tokens* tokens, topk_error* error) {
  return c::guarded(error, [&] {
    const TopKSoftmax& asked = *c::required(backend, "backend").backend;
    topk_workspace& memory = c::required(workspace, "workspace");
    const topk_flat_tokens out = flat_tokens(tokens, batch);
    const Contexts given = c::contexts_of(contexts, batch, dim, stride);
    if (batch == 0) return;
    c::required(samplers, "samplers");
    c::required(randoms, "randoms");
    std::span<const QueryOptions> of_each;
    if (queries != nullptr) of_each = c::options_of_each("draw_each", queries, batch, memory);
    const std::vector<DrawRequest> requests = requests_of({samplers, batch}, {randoms, batch}, of_each);
    std::vector<SampledToken> drawn(batch);
    GivenBack streams({randoms, batch});
    draw_each(asked, given, requests, drawn, memory.workspaces, memory.executor.get());
    streams.keep();
    for (std::size_t i = 0; i < batch; ++i) store(drawn[i], i, out);
  });
}
