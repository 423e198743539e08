// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/config.hpp"
#include "topksoftmax/contexts.hpp"
#include "topksoftmax/evaluation/tune.hpp"
#include "topksoftmax/evaluation/tune_options.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/registry/standard.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/types.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// The same as tune() of tune.hpp, which says what it does, with every backend of the library.
inline TuneResult tune(const SoftmaxLayer& layer, const Contexts& contexts, const TuneOptions& options = {},
                       const Executor& executor = default_executor()) {
  return tune(layer, contexts, options, Registry::standard(), executor);
}

inline TuneResult tune(const SoftmaxLayer& layer, const ConstRows& contexts, const TuneOptions& options = {},
                       const Executor& executor = default_executor()) {
  return tune(layer, Contexts::of(contexts), options, executor);
}

}  // namespace TOPKSOFTMAX_NAMESPACE
