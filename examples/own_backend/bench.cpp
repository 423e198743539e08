// SPDX-License-Identifier: Apache-2.0
//
// The harness with one backend more: mine-bench --head HEAD --backends fused,certified,mine,certify:mine
// --sweep
#include <topksoftmax/harness/harness.hpp>
#include <topksoftmax/registry/standard.hpp>

#include "mine.hpp"

int main(int argc, char** argv) {
  topksoftmax::Registry registry = topksoftmax::Registry::standard();
  registry.add<own_backend::Mine>();
  return topksoftmax::run_harness(argc, argv, registry);
}
