// SPDX-License-Identifier: Apache-2.0
//
// Backends over slices as subjects of the conformance suite.
#include <mpi.h>

#include <string>
#include <vector>

#include "topksoftmax/conformance/suite.hpp"
#include "topksoftmax/distributed/description.hpp"
#include "topksoftmax/registry/standard.hpp"

namespace topksoftmax {

conformance::Suite conformance::suite() {
  const std::vector<Subject> subjects = {
      {"exact"},
      {"fused"},
      {"quantized"},
      {"certified", {{"width", "16"}, {"boxes", "never"}}},
      {"certified", {{"width", "16"}, {"boxes", "always"}}, "certified-boxes"},
      {"certify:shortlist", {{"width", "16"}}}};
  const Registry standard = Registry::standard();
  Suite sharded;
  for (const Subject& subject : subjects) {
    BackendDescription description = describe_sharded(MPI_COMM_WORLD, standard.find(subject.backend));
    const std::string name = subject.name.empty() ? description.name : "sharded:" + subject.name;
    sharded.subjects.push_back({description.name, subject.settings, name});
    if (subject.name.empty()) sharded.registry.add(std::move(description));
  }
  return sharded;
}

}  // namespace topksoftmax
