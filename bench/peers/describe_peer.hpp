// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "topksoftmax/check_options.hpp"
#include "topksoftmax/registry/backend_builder.hpp"
#include "topksoftmax/registry/description.hpp"

namespace topksoftmax::bench {

/// Another library as a backend: it is measured, and neither saved nor tuned. `build` is that of builder();
/// it is given no options but what their limits allow.
template <class Options, class Build>
BackendDescription describe_peer(std::string name, std::string summary, Build build) {
  auto checked = [name, build = std::move(build)](const BuildMaterial& from, const Options& options) {
    check_options(name, options);
    return build(from, options);
  };
  return {.name = std::move(name),
          .kind = {},
          .summary = std::move(summary),
          .traits = {.has_index = false},
          .builder = builder<Options>({}, std::move(checked)),
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
