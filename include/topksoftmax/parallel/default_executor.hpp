// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "topksoftmax/config.hpp"
#include "topksoftmax/parallel/executor.hpp"

#if defined(TOPKSOFTMAX_HEADER_ONLY) || defined(TOPKSOFTMAX_BUILDING)
#if defined(_OPENMP)
#include "topksoftmax/parallel/openmp_executor.hpp"
#else
#include "topksoftmax/parallel/started_threads.hpp"
#endif
#endif

namespace TOPKSOFTMAX_NAMESPACE {

#if defined(TOPKSOFTMAX_HEADER_ONLY) || defined(TOPKSOFTMAX_BUILDING)
namespace detail {

#if defined(_OPENMP)
using DefaultExecutor = OpenMpExecutor;
#else
using DefaultExecutor = StartedThreads;
#endif
inline constexpr DefaultExecutor kDefaultExecutor;

}  // namespace detail
#endif

/// The executor that is taken where none is given: OpenMP's threads where the library was built with OpenMP
/// (of headers alone: where this file is), otherwise threads that are started for each loop (StartedThreads).
#if defined(TOPKSOFTMAX_HEADER_ONLY)
inline const Executor& default_executor() {
  return detail::kDefaultExecutor;
}
#else
TOPKSOFTMAX_EXPORT const Executor& default_executor();
#endif

}  // namespace TOPKSOFTMAX_NAMESPACE
