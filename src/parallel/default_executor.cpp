// SPDX-License-Identifier: Apache-2.0
#define TOPKSOFTMAX_BUILDING
#include "topksoftmax/parallel/default_executor.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

const Executor& default_executor() {
  return detail::kDefaultExecutor;
}

}  // namespace TOPKSOFTMAX_NAMESPACE
