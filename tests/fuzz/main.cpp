// SPDX-License-Identifier: Apache-2.0
//
// What libFuzzer calls: TOPKSOFTMAX_FUZZ_TARGET, of targets.hpp.
#ifdef _OPENMP
#include <omp.h>
#endif

#include <cstddef>
#include <cstdint>

#include "fuzz/targets.hpp"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
#ifdef _OPENMP
  omp_set_num_threads(1);  // builds are small, and many fuzzers may run at a time
#endif
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  topksoftmax::fuzz::TOPKSOFTMAX_FUZZ_TARGET({data, size});
  return 0;
}
