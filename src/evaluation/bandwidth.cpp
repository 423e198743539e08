// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/evaluation/bandwidth.hpp"

#include <algorithm>
#include <cstddef>
#include <new>

#define HWY_WANT_AVX3_DL
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV | HWY_SSSE3)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "evaluation/bandwidth.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace topksoftmax {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// The sum of `count` floats, a multiple of 1024. Eight sums hide the latency of an addition: fewer are
/// slower in the first cache, software prefetches and several streams gain nothing in any.
float Sum(const float* HWY_RESTRICT values, std::size_t count) {
  const hn::ScalableTag<float> d;
  constexpr std::size_t kLanes = hn::MaxLanes(d);
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
  for (std::size_t i = 0; i < count; i += 8 * kLanes) {
    const float* p = values + i;
    s0 = hn::Add(s0, hn::Load(d, p));
    s1 = hn::Add(s1, hn::Load(d, p + kLanes));
    s2 = hn::Add(s2, hn::Load(d, p + 2 * kLanes));
    s3 = hn::Add(s3, hn::Load(d, p + 3 * kLanes));
    s4 = hn::Add(s4, hn::Load(d, p + 4 * kLanes));
    s5 = hn::Add(s5, hn::Load(d, p + 5 * kLanes));
    s6 = hn::Add(s6, hn::Load(d, p + 6 * kLanes));
    s7 = hn::Add(s7, hn::Load(d, p + 7 * kLanes));
  }
  const auto sum =
      hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(hn::Add(s4, s5), hn::Add(s6, s7)));
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

}  // namespace HWY_NAMESPACE
}  // namespace topksoftmax
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace topksoftmax {
namespace {

HWY_EXPORT(Sum);

constexpr std::size_t kPage = 4096;

}  // namespace

void ReadProbe::Free::operator()(float* p) const {
  ::operator delete (p, std::align_val_t{kPage});
}

ReadProbe::ReadProbe(std::size_t bytes)
    : bytes_(std::max<std::size_t>((bytes + kPage - 1) / kPage, 1) * kPage) {
  values_.reset(static_cast<float*>(::operator new (bytes_, std::align_val_t{kPage})));
  std::fill_n(values_.get(), bytes_ / sizeof(float), 1.0F);
}

void ReadProbe::read() {
  sink_ += HWY_DYNAMIC_DISPATCH(Sum)(values_.get(), bytes_ / sizeof(float));
}

}  // namespace topksoftmax
#endif
