// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// `text` in quotes, shortened and escaped as JSON escapes it, in ASCII: no control reaches a terminal.
TOPKSOFTMAX_EXPORT std::string in_quotes(std::string_view text);

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

#if defined(TOPKSOFTMAX_HEADER_ONLY)
#include "topksoftmax/index/quoted-inl.hpp"
#endif
