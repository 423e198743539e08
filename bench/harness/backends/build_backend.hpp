// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "harness/backends/choice.hpp"
#include "harness/heads/head.hpp"
#include "harness/text/progress.hpp"
#include "topksoftmax/top_k_softmax.hpp"

namespace topksoftmax::bench {

/// What a head has to build from. The head outlives it.
BuildMaterial material_of(const Head& head);

/// Builds a backend for a head, on every core, and shows how far it is. Throws what it throws; the message of
/// an Error begins with the backend's name.
std::unique_ptr<TopKSoftmax> build_backend(const Choice& choice, const Head& head, Progress& progress);

}  // namespace topksoftmax::bench
