// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "topksoftmax/config.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/index/quoted.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// An Error about an index that none of the `known` kinds is of.
inline Error unknown_kind(const IndexReader& in, const std::string& known) {
  return Error(in.source() + ": holds an index of kind " + in_quotes(in.kind()) +
               ", which this library does not know; it knows " + known +
               "; load it with the library that wrote it, or build one of these");
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
