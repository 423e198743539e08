// SPDX-License-Identifier: Apache-2.0
//
// Google Benchmark of every kernel in every implementation that this processor runs, and of what the steps of
// Certified cost in the fastest one.
#include "kernels/registration.hpp"

int main(int argc, char** argv) {
  topksoftmax::bench::register_row_kernels();
  topksoftmax::bench::register_reductions();
  topksoftmax::bench::register_prefix_bounds();
  topksoftmax::bench::register_multiply();
  topksoftmax::bench::register_wta();
  topksoftmax::bench::register_certified_costs();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
