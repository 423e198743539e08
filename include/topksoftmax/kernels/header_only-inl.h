// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/implementation-inl.h"
#include "topksoftmax/kernels/implementation.hpp"

// The kernels for the instruction set that this file is compiled for, with nothing to choose at run time.
namespace TOPKSOFTMAX_NAMESPACE::kernels::detail {

inline constexpr Implementation kStaticImplementation =
    HWY_NAMESPACE::ImplementationIn<HWY_NAMESPACE::Products>(
        std::string_view(HWY_STR(HWY_NAMESPACE)).substr(2));  // namespaces are called N_…

inline std::span<const Implementation> implementations() {
  return {&kStaticImplementation, 1};
}

inline const Implementation& active() {
  return kStaticImplementation;
}

}  // namespace TOPKSOFTMAX_NAMESPACE::kernels::detail
