// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/harness/harness.hpp"
#include "topksoftmax/registry/standard.hpp"

int main(int argc, char** argv) {
  return topksoftmax::run_harness(argc, argv, topksoftmax::Registry::standard());
}
