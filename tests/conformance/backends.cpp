// SPDX-License-Identifier: Apache-2.0
#include "conformance/backends.hpp"

#include <algorithm>

#include "topksoftmax/contexts.hpp"

namespace topksoftmax::testing {
namespace {

const conformance::Suite& tried() {
  static const conformance::Suite suite = conformance::suite();
  return suite;
}

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

}  // namespace

std::unique_ptr<TopKSoftmax> Backend::make(const SoftmaxLayer& layer, const RowMajorMatrix& contexts) const {
  return description.build({.layer = layer, .contexts = Contexts::of(contexts)}, settings);
}

const std::vector<Backend>& all_backends() {
  static const std::vector<Backend> all = [] {
    std::vector<Backend> made;
    for (const conformance::Subject& subject : tried().subjects) {
      made.push_back({.name = subject.name.empty() ? subject.backend : subject.name,
                      .description = tried().registry.find(subject.backend),
                      .settings = subject.settings});
    }
    return made;
  }();
  return all;
}

const BackendLoader& loader() {
  return tried().registry;
}

std::string suite_name(const Backend& backend) {
  std::string name = backend.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !is_letter_or_digit(c); }, '_');
  return name;
}

}  // namespace topksoftmax::testing
