// SPDX-License-Identifier: Apache-2.0
#include "c/workspace.hpp"

#include <cstddef>

#include "c/guard.hpp"
#include "topksoftmax/c/topksoftmax.h"

using namespace topksoftmax;

topk_status topk_workspace_new(size_t threads, const topk_executor* executor, topk_workspace** workspace,
                               topk_error* error) {
  return c::guarded(error, [&] {
    c::required(workspace, "workspace");
    *workspace = new topk_workspace(threads, executor);
  });
}

void topk_workspace_free(topk_workspace* workspace) {
  delete workspace;
}
