// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/decoding/penalties.hpp"

#include <cstddef>
#include <cstdint>

#include "c/guard.hpp"
#include "c/handles.hpp"
#include "c/workspace.hpp"
#include "topksoftmax/c/topksoftmax.h"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/top_k_softmax.hpp"
#include "topksoftmax/types.hpp"

using namespace topksoftmax;

topk_status topk_penalise(const topk_penalties* penalties, const topk_backend* backend, const float* h,
                          size_t dim, const int32_t* history, size_t history_count,
                          const topk_query_options* options, topk_workspace* workspace,
                          topk_token_bias* biases, size_t* bias_count, topk_error* error) {
  return c::guarded(error, [&] {
    const TopKSoftmax& asked = *c::required(backend, "backend").backend;
    topk_workspace& memory = c::required(workspace, "workspace");
    c::required(h, "h");
    if (history_count != 0) c::required(history, "history");
    c::required(bias_count, "bias_count");
    const topk_penalties given = c::known(penalties, TOPK_PENALTIES_INIT, "penalties");
    const QueryOptions query = c::options_of(options, memory.biases);
    PenaltyBiases penalise(
        {.repetition = given.repetition, .presence = given.presence, .frequency = given.frequency});
    const auto found = penalise(asked, {h, dim}, {history, history_count}, query, memory.workspaces[0]);
    if (!found.empty()) c::required(biases, "biases");
    topk_token_bias* out = biases;
    for (const TokenBias& bias : found) *out++ = {.id = bias.id, .bias = bias.bias};
    *bias_count = found.size();
  });
}
