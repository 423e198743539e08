// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "topksoftmax/config.hpp"
#include "topksoftmax/registry/registry.hpp"
#include "topksoftmax/registry/settings.hpp"

namespace TOPKSOFTMAX_NAMESPACE::conformance {

/// A backend as the conformance suite tries it.
struct Subject {
  std::string backend;  ///< its name in the registry: "mine", or "certify:mine"
  /// For small layers: V from 1 to 9,000, d from 1 to 96, some with no more than 40 contexts to learn from.
  Settings settings = {};
  /// Of its tests, where a backend is tried with several settings; empty: the backend's.
  std::string name = {};
};

/// What the conformance suite tries, and the registry that builds and loads it.
struct Suite {
  /// Where the subjects are looked up.
  Registry registry;
  /// What is tested: each of them by every test.
  std::vector<Subject> subjects;
};

/// The suite holds every subject to what TopKSoftmax promises: logits that are exact dot products, order,
/// ties, masks, biases, normalisers, certificates, bad input, batches, threads, memory that runs out, and
/// indexes that are saved, loaded, damaged or of another layer.
///
/// It is TopKSoftmax::conformance in CMake (find_package(TopKSoftmax COMPONENTS conformance)), on GoogleTest.
/// The program that is linked with it defines this function; GoogleTest's main() calls it once.
Suite suite();

}  // namespace TOPKSOFTMAX_NAMESPACE::conformance
