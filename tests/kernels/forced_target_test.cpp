// SPDX-License-Identifier: Apache-2.0
//
// TOPKSOFTMAX_TARGET names an instruction set, as Highway does, that all tests of a run are to use: the
// faster ones are hidden before anything asks which there are. Where the processor does not have it, a run
// ends with 77, which CTest takes for skipped.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "topksoftmax/kernels/implementation.hpp"

namespace topksoftmax {
namespace {

constexpr int kSkipped = 77;

std::string_view wanted_target() {
  const char* const name = std::getenv("TOPKSOFTMAX_TARGET");
  return name == nullptr ? "" : name;
}

bool is_wanted(const kernels::detail::Implementation& implementation) {
  const std::string wanted(wanted_target());
  const auto is = [&](std::string_view form) { return implementation.name == wanted + std::string(form); };
  return is("") || is("_VNNI") || is("_AMX");  // further forms of AVX2 and of AVX3_DL
}

/// Whether one is forced.
bool hide_faster_targets() {
  const std::string_view wanted = wanted_target();
  if (wanted.empty()) return false;
  std::int64_t faster = 0;
  // The lower a target's bit, the faster it is.
  for (std::int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    const std::int64_t target = left & -left;
    if (hwy::TargetName(target) != wanted) {
      faster |= target;
      continue;
    }
    hwy::DisableTargets(faster);
    const auto all = kernels::detail::implementations();
    if (std::any_of(all.begin(), all.end(), is_wanted)) return true;
  }
  std::printf("%s: this processor does not have it, or the library not a form for it\n", wanted.data());
  std::exit(kSkipped);
}

const bool is_forced = hide_faster_targets();

TEST(ForcedTarget, IsTheOneInUse) {
  if (!is_forced) GTEST_SKIP() << "none is forced";
  EXPECT_TRUE(is_wanted(kernels::detail::active())) << kernels::detail::active().name;
}

}  // namespace
}  // namespace topksoftmax
