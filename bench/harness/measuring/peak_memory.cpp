// SPDX-License-Identifier: Apache-2.0
#include "harness/measuring/peak_memory.hpp"

#include <fstream>
#include <limits>
#include <string>
#include <string_view>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace topksoftmax::bench {
namespace {

/// A line of /proc/self/status in bytes.
double status_bytes(std::string_view wanted) {
  std::ifstream status("/proc/self/status");
  std::string key;
  for (double kilobytes = 0.0; status >> key;
       status.ignore(std::numeric_limits<std::streamsize>::max(), '\n')) {
    if (key == wanted && status >> kilobytes) return 1024.0 * kilobytes;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

PeakMemory::PeakMemory() {
#ifdef __GLIBC__
  malloc_trim(0);  // what earlier builds have freed would hide what this one takes
#endif
  // The peak becomes what is held now. Where that cannot be asked for, it is the peak of all that went before.
  std::ofstream peak("/proc/self/clear_refs");
  const bool is_reset = static_cast<bool>(peak << "5\n" << std::flush);
  before_ = is_reset ? status_bytes("VmRSS:") : std::numeric_limits<double>::quiet_NaN();
}

double PeakMemory::growth() const {
  const double growth = status_bytes("VmHWM:") - before_;
  return growth < 0.0 ? 0.0 : growth;
}

}  // namespace topksoftmax::bench
