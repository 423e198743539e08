// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Options that differ from their defaults, as text: name → value. Command lines, files and other languages
/// pass options so.
using Settings = std::map<std::string, std::string, std::less<>>;

}  // namespace TOPKSOFTMAX_NAMESPACE
