// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "c/executor.hpp"
#include "topksoftmax/c/topksoftmax.h"
#include "topksoftmax/query_options.hpp"
#include "topksoftmax/top_k.hpp"
#include "topksoftmax/types.hpp"
#include "topksoftmax/workspace.hpp"

struct topk_workspace {
  topk_workspace(std::size_t threads, const topk_executor* given)
      : executor(given), workspaces(threads != 0 ? threads : executor.get().threads()) {}

  topksoftmax::c::ChosenExecutor executor;
  std::vector<topksoftmax::Workspace> workspaces;
  std::vector<topksoftmax::TokenBias> biases;
  std::vector<std::vector<topksoftmax::TokenBias>> biases_of_each;  // contexts with options of their own
  std::vector<topksoftmax::QueryOptions> options_of_each;
  topksoftmax::TopK answer;
};
