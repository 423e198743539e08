// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/amx.hpp"
#include "topksoftmax/kernels/implementation-inl.h"
#include "topksoftmax/kernels/implementation.hpp"
#include "topksoftmax/kernels/targets.hpp"

// The kernels for the instruction set that this file is compiled for, with nothing to choose at run time but
// whether batches are met by AMX's tiles, which the system must grant.
namespace TOPKSOFTMAX_NAMESPACE::kernels::detail {

inline void prefix_bounds_batch_as_granted(const PrefixBlocks& prefix, const PrefixProducts* batch,
                                           std::size_t count) {
#if TOPKSOFTMAX_TARGET_HAS_AVX3_DL && (defined(__AMX_INT8__) || defined(__AMXINT8__))
  static const bool granted = may_use_amx();
  if (granted) return HWY_NAMESPACE::PrefixBoundsByAmx(prefix, batch, count);
#endif
  HWY_NAMESPACE::PrefixBoundsBatch<HWY_NAMESPACE::Products>(prefix, batch, count);
}

inline constexpr Implementation kStaticImplementation =
    HWY_NAMESPACE::ImplementationIn<HWY_NAMESPACE::Products>(HWY_NAMESPACE::kTarget,
                                                             &prefix_bounds_batch_as_granted);

inline std::span<const Implementation> implementations() {
  return {&kStaticImplementation, 1};
}

inline const Implementation& active() {
  return kStaticImplementation;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::kernels::detail
