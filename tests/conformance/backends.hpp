// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "topksoftmax/conformance/suite.hpp"
#include "topksoftmax/index/index_reader.hpp"
#include "topksoftmax/registry/description.hpp"
#include "topksoftmax/softmax_layer.hpp"
#include "topksoftmax/top_k_softmax.hpp"

namespace topksoftmax::testing {

/// A backend of conformance::suite() with the settings that it is tried with.
struct Backend {
  std::string name;
  BackendDescription description;
  Settings settings;

  std::unique_ptr<TopKSoftmax> make(const SoftmaxLayer& layer, const RowMajorMatrix& contexts) const;

  friend void PrintTo(const Backend& backend, std::ostream* out) { *out << backend.name; }
};

/// Those of conformance::suite(), in its order.
const std::vector<Backend>& all_backends();

/// Loads their indexes.
const BackendLoader& loader();

/// Its name as googletest takes it: letters, digits and underscores.
std::string suite_name(const Backend& backend);

}  // namespace topksoftmax::testing
