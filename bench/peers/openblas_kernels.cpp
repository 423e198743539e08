// SPDX-License-Identifier: Apache-2.0
#include "peers/openblas_kernels.hpp"

#include <cblas.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "topksoftmax/kernels/kernels.hpp"

namespace topksoftmax::bench {
namespace {

/// OpenBLAS's name for the kernels that suit this processor; empty where its own choice is as good.
const char* better_kernels() {
  constexpr std::array<std::string_view, 6> kWithAvx2 = {"Haswell",  "Zen",        "Excavator",
                                                         "SkylakeX", "Cooperlake", "SapphireRapids"};
  const std::string_view chosen = openblas_get_corename();
  if (std::find(kWithAvx2.begin(), kWithAvx2.end(), chosen) != kWithAvx2.end()) return "";
  const std::string_view simd = kernels::detail::active().name;
  return simd.starts_with("AVX3") ? "SkylakeX" : simd.starts_with("AVX2") ? "Haswell" : "";
}

}  // namespace

void choose_openblas_kernels(char** argv) {
  constexpr const char* kVariable = "OPENBLAS_CORETYPE";
  if (std::getenv(kVariable) != nullptr) return;  // whether or not the library has these
  const char* const better = better_kernels();
  if (*better == '\0' || setenv(kVariable, better, 1) != 0) return;
  execv("/proc/self/exe", argv);  // returns only if it cannot: then the kernels are what they are
}

}  // namespace topksoftmax::bench
