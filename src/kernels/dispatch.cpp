// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdint>

#include "topksoftmax/kernels/amx.hpp"
#include "topksoftmax/kernels/implementation.hpp"

// Every instruction set that the compiler knows gets its copy of what follows. Vectors of unknown length
// (SVE, RVV) cannot be kept in arrays, as the tiles do; such machines have NEON or the plain form.
#define HWY_WANT_AVX3_DL
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dispatch.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <hwy/targets.h>

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

#include "topksoftmax/kernels/implementation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace TOPKSOFTMAX_NAMESPACE::kernels {
namespace HWY_NAMESPACE {

extern const detail::Implementation kImplementation;
constinit const detail::Implementation kImplementation = ImplementationIn<Products>();

#if HWY_TARGET == HWY_AVX3_DL
extern const detail::Implementation kAmxImplementation;
constinit const detail::Implementation kAmxImplementation =
    ImplementationIn<Products>("AVX3_DL_AMX", &PrefixBoundsByAmx);
#endif

#if HWY_TARGET == HWY_AVX2
extern const detail::Implementation kVnniImplementation;
constinit const detail::Implementation kVnniImplementation = ImplementationIn<ByteProducts>("AVX2_VNNI");
#endif

}  // namespace HWY_NAMESPACE
}  // namespace TOPKSOFTMAX_NAMESPACE::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace TOPKSOFTMAX_NAMESPACE::kernels::detail {
namespace {

#if HWY_TARGETS & HWY_AVX2
/// VNNI without AVX-512, which Highway 1.0.3 has no target for.
bool has_avx_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0;
}
#endif

struct List {
  std::array<Implementation, 16> items{};
  std::size_t size = 0;

  /// What the whole program is compiled for runs in any case: Highway leaves NEON out where AES is missing.
  void add([[maybe_unused]] std::int64_t target, const Implementation& implementation) {
    if (((hwy::SupportedTargets() | HWY_STATIC_TARGET) & target) != 0) items[size++] = implementation;
  }
};

const List& list() {
  static const List all = [] {
    List made;
#if HWY_TARGETS & HWY_AVX3_DL
    if (may_use_amx()) made.add(HWY_AVX3_DL, N_AVX3_DL::kAmxImplementation);
    made.add(HWY_AVX3_DL, N_AVX3_DL::kImplementation);
#endif
#if HWY_TARGETS & HWY_AVX3
    made.add(HWY_AVX3, N_AVX3::kImplementation);
#endif
#if HWY_TARGETS & HWY_AVX2
    if (has_avx_vnni()) made.add(HWY_AVX2, N_AVX2::kVnniImplementation);
    made.add(HWY_AVX2, N_AVX2::kImplementation);
#endif
#if HWY_TARGETS & HWY_SSE4
    made.add(HWY_SSE4, N_SSE4::kImplementation);
#endif
#if HWY_TARGETS & HWY_NEON
    made.add(HWY_NEON, N_NEON::kImplementation);
#endif
#if HWY_TARGETS & HWY_EMU128
    made.add(HWY_EMU128, N_EMU128::kImplementation);
#endif
#if HWY_TARGETS & HWY_SCALAR
    made.add(HWY_SCALAR, N_SCALAR::kImplementation);
#endif
    // A target that is not named above is still what the program is compiled for: the list is never empty.
    if (made.size == 0) made.add(HWY_STATIC_TARGET, HWY_STATIC_DISPATCH(kImplementation));
    return made;
  }();
  return all;
}

}  // namespace

std::span<const Implementation> implementations() {
  return {list().items.data(), list().size};
}

const Implementation& active() {
  return list().items[0];
}

}  // namespace TOPKSOFTMAX_NAMESPACE::kernels::detail
#endif
