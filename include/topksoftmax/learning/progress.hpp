// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// Told now and then, on the thread that trains, what is being done and what share of the whole is done, 0
/// to 1.
using TrainingProgress = std::function<void(std::string_view step, double done)>;

}  // namespace TOPKSOFTMAX_NAMESPACE
