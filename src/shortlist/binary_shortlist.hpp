// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// What Marian's binary shortlists begin with: the number 0xF11A48D5013417F5.
inline constexpr std::string_view kShortlistMagic = "\xf5\x17\x34\x01\xd5\x48\x1a\xf1";

}  // namespace TOPKSOFTMAX_NAMESPACE
