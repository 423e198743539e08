// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "conformance/backends.hpp"
#include "fuzz/choices.hpp"
#include "fuzz/fuzzed_head.hpp"
#include "fuzz/targets.hpp"

namespace topksoftmax::fuzz {

void queries(Bytes input) {
  Choices choices(input);
  const std::vector<testing::Backend>& backends = testing::all_backends();
  const FuzzedHead head(backends[choices.place(backends.size())], choices);
  if (head.accepted()) head.ask(choices);
}

}  // namespace topksoftmax::fuzz
