// SPDX-License-Identifier: Apache-2.0
#include "harness/measuring/machine.hpp"

#include <fstream>
#include <thread>

#include "topksoftmax/kernels/kernels.hpp"

namespace topksoftmax::bench {
namespace {

/// The processor's name as Linux knows it; "unknown" where there is none.
std::string cpu_name() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

Machine describe_machine() {
  return {.cpu = cpu_name(),
          .cores = std::thread::hardware_concurrency(),
          .simd = std::string(kernels::detail::active().name)};
}

}  // namespace topksoftmax::bench
