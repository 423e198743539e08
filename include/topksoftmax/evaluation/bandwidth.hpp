// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "topksoftmax/export.hpp"

namespace topksoftmax {

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

}  // namespace topksoftmax
