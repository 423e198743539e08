// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "topksoftmax/config.hpp"
#include "topksoftmax/kernels/kernels.hpp"
#include "topksoftmax/parallel/default_executor.hpp"
#include "topksoftmax/parallel/executor.hpp"
#include "topksoftmax/parallel/for_each_part.hpp"
#include "topksoftmax/storage/aligned_storage.hpp"

namespace TOPKSOFTMAX_NAMESPACE {

/// A buffer that is read as fast as the machine's cores can: whole vectors, one after the other, into sums
/// that do not wait for each other. It bounds what a scan of so many bytes can reach in the same caches.
class TOPKSOFTMAX_EXPORT ReadProbe {
 public:
  /// A buffer of `bytes`, rounded up to a whole number of 4 KiB pages.
  explicit ReadProbe(std::size_t bytes);

  /// Bytes that are read.
  std::size_t bytes() const { return bytes_; }

  /// Reads the buffer once, its parts shared by `threads` ≥ 1 of the executor's threads.
  void read(std::size_t threads = 1, const Executor& executor = default_executor());

 private:
  float* values() const { return reinterpret_cast<float*>(storage_.get()); }

  std::size_t bytes_;
  detail::AlignedStorage storage_;
  float sink_ = 0.0F;
};

}  // namespace TOPKSOFTMAX_NAMESPACE

namespace TOPKSOFTMAX_NAMESPACE::detail {

inline constexpr std::size_t kPage = 4096;
/// Of a buffer, so that a thread that is held up has others take its share.
inline constexpr std::size_t kPartsAThread = 4;
static_assert(kPage % (kernels::kReadBlock * sizeof(float)) == 0);

}  // namespace TOPKSOFTMAX_NAMESPACE::detail

namespace TOPKSOFTMAX_NAMESPACE {

inline ReadProbe::ReadProbe(std::size_t bytes)
    : bytes_(std::max<std::size_t>((bytes + detail::kPage - 1) / detail::kPage, 1) * detail::kPage),
      storage_(detail::aligned_memory(bytes_, detail::kPage)) {
  std::fill_n(values(), bytes_ / sizeof(float), 1.0F);
}

inline void ReadProbe::read(std::size_t threads, const Executor& executor) {
  const std::size_t pages = bytes_ / detail::kPage;
  const std::size_t parts = threads == 1 ? 1 : threads * detail::kPartsAThread;
  constexpr std::size_t kValues = detail::kPage / sizeof(float);
  for_each_part_on(executor, threads, pages, (pages + parts - 1) / parts,
                   [&](std::size_t first, std::size_t count, std::size_t) {
                     std::atomic_ref(sink_) += kernels::sum(values() + first * kValues, count * kValues);
                   });
}

}  // namespace TOPKSOFTMAX_NAMESPACE
