// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <optional>

#include "c/guard.hpp"
#include "c/handles.hpp"
#include "c/workspace.hpp"
#include "topksoftmax/c/topksoftmax.h"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/sampled_log_z.hpp"
#include "topksoftmax/top_k_softmax.hpp"

using namespace topksoftmax;

topk_status topk_sample_log_z(const topk_backend* backend, const float* h, size_t dim,
                              const topk_log_z_options* how, const topk_query_options* options,
                              topk_workspace* workspace, topk_sampled_log_z* found, topk_error* error) {
  return c::guarded(error, [&] {
    const TopKSoftmax& asked = *c::required(backend, "backend").backend;
    topk_workspace& memory = c::required(workspace, "workspace");
    c::required(h, "h");
    topk_sampled_log_z& out = c::required(found, "found");
    c::check_size(out, "found");
    const topk_log_z_options wanted = c::known(how, TOPK_LOG_Z_OPTIONS_INIT, "how");
    const QueryOptions query = c::options_of(options, memory.biases);
    const std::optional<SampledLogZ> sampled = asked.sample_log_z(
        {h, dim}, {.error = wanted.error, .temperature = wanted.temperature, .seed = wanted.seed}, query,
        memory.workspaces[0]);
    topk_sampled_log_z told = TOPK_SAMPLED_LOG_Z_INIT;
    if (sampled) {
      told.known = 1;
      told.log_z = sampled->log_z;
      told.error = sampled->error;
      told.rows_read = sampled->rows_read;
    }
    c::store(told, out);
  });
}
