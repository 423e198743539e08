// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// The names of some things, with commas between them.
template <class Range, class NameOf>
std::string joined(const Range& range, const NameOf& name_of) {
  std::string names;
  for (const auto& one : range) {
    if (!names.empty()) names += ", ";
    names += std::invoke(name_of, one);
  }
  return names;
}

/// The same of names.
template <class Range>
std::string joined(const Range& names) {
  return joined(names, std::identity());
}

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
