// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/kernels.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// A buffer that is read as fast as one core of the machine can: whole vectors, one after the other, into
/// sums that do not wait for each other. It bounds what a scan of so many bytes can reach in the same caches.
class TOPKSOFTMAX_EXPORT ReadProbe {
 public:
  /// A buffer of `bytes`, rounded up to a whole number of 4 KiB pages.
  explicit ReadProbe(std::size_t bytes);

  std::size_t bytes() const { return bytes_; }

  /// Reads the buffer once.
  void read();

 private:
  struct Free {
    void operator()(float* p) const;
  };
  std::unique_ptr<float, Free> values_;
  std::size_t bytes_;
  float sink_ = 0.0F;
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

inline constexpr std::size_t kPage = 4096;
static_assert(kPage % (kernels::kReadBlock * sizeof(float)) == 0);

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline void ReadProbe::Free::operator()(float* p) const {
  ::operator delete (p, std::align_val_t{detail::kPage});
}

inline ReadProbe::ReadProbe(std::size_t bytes)
    : bytes_(std::max<std::size_t>((bytes + detail::kPage - 1) / detail::kPage, 1) * detail::kPage) {
  values_.reset(static_cast<float*>(::operator new (bytes_, std::align_val_t{detail::kPage})));
  std::fill_n(values_.get(), bytes_ / sizeof(float), 1.0F);
}

inline void ReadProbe::read() {
  sink_ += kernels::sum(values_.get(), bytes_ / sizeof(float));
}

}  // namespace TOPKSOFTMAX_NAMESPACE
