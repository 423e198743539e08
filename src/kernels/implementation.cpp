// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/kernels/implementation.hpp"

#include <array>
#include <cstdint>

// Every instruction set that the compiler knows gets its copy of what follows. Vectors of unknown length
// (SVE, RVV) cannot be kept in arrays, as the tiles do; such machines have NEON or the plain form.
#define HWY_WANT_AVX3_DL
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/implementation.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include <hwy/targets.h>

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

#include "kernels/bounded-inl.h"
#include "kernels/few-inl.h"
#include "kernels/prefix_bounds-inl.h"
#include "kernels/reduce-inl.h"
#include "kernels/scan-inl.h"
#include "kernels/squared_distance-inl.h"
#include "kernels/sum-inl.h"
#include "kernels/wta-inl.h"

HWY_BEFORE_NAMESPACE();
namespace topksoftmax::kernels {
namespace HWY_NAMESPACE {

/// All kernels, those of int8 prefixes in the given form (see prefix_bounds-inl.h).
template <class Form>
constexpr Implementation ImplementationIn(std::string_view name) {
  return {
      .name = name,
      .scan = &Scan,
      .scan_gathered = &ScanGathered,
      .scan_batch = &ScanBatch,
      .scan_gathered_batch = &ScanGatheredBatch,
      .combine_rows = &CombineRows,
      .argmax = &Argmax,
      .fused_scan = &FusedScan,
      .fused_scan_batch = &FusedScanBatch,
      .select = &Select,
      .fused_select = &FusedSelect,
      .kth_of_few = &KthOfFew,
      .rank_few = &RankFew,
      .max = &Max,
      .sum_exp = &SumExp,
      .sum = &Sum,
      .exp = &Exp,
      .prefix_bounds = &PrefixBounds<Form>,
      .prefix_bounds_gathered = &PrefixBoundsGathered<Form>,
      .box_bounds = &BoxBounds<Form>,
      .tail_bounds = &TailBounds,
      .promising = &Promising,
      .reaching = &Reaching,
      .partition = &PartitionAt,
      .sum_exp_bounds = &SumExpBounds,
      .wta_codes = &WtaCodes,
      .wta_codes_batch = &WtaCodesBatch,
      .mark_reaching = &MarkReaching,
      .squared_distance = &SquaredDistance,
      .squared_length = &SquaredLength,
  };
}

extern const Implementation kImplementation;
constinit const Implementation kImplementation = ImplementationIn<Products>(
    std::string_view(HWY_STR(HWY_NAMESPACE)).substr(2));  // namespaces are called N_…

#if HWY_TARGET == HWY_AVX2
extern const Implementation kVnniImplementation;
constinit const Implementation kVnniImplementation = ImplementationIn<ByteProducts>("AVX2_VNNI");
#endif

}  // namespace HWY_NAMESPACE
}  // namespace topksoftmax::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace topksoftmax::kernels {
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

}  // namespace topksoftmax::kernels
#endif
