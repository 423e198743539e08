// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "topksoftmax/registry/description.hpp"

namespace topksoftmax::bench {

/// Another library as a backend: it is measured, and neither saved nor tuned. `build` is that of builder().
template <class Options, class Build>
BackendDescription describe_peer(std::string name, std::string summary, Build build) {
  return {.name = std::move(name),
          .kind = {},
          .summary = std::move(summary),
          .traits = {.has_index = false},
          .builder = builder<Options>({}, std::move(build)),
          .tuning = std::nullopt};
}

/// The same with what a sweep varies.
template <class Options, class Build>
BackendDescription describe_peer(std::string name, std::string summary, Build build, OptionAxis axis) {
  BackendDescription peer = describe_peer<Options>(std::move(name), std::move(summary), std::move(build));
  peer.axes = {std::move(axis)};
  return peer;
}

}  // namespace topksoftmax::bench
