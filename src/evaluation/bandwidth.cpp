// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/evaluation/bandwidth.hpp"

#include <algorithm>
#include <cstddef>
#include <new>

#include "topksoftmax/kernels/implementation.hpp"

namespace topksoftmax {
namespace {

constexpr std::size_t kPage = 4096;
static_assert(kPage % (kernels::kReadBlock * sizeof(float)) == 0);

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
  sink_ += kernels::active().sum(values_.get(), bytes_ / sizeof(float));
}

}  // namespace topksoftmax
