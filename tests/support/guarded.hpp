// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <span>
#include <stdexcept>
#include <type_traits>

namespace topksoftmax::testing {

/// `count` values that end where a page begins that no one may touch: a program that reads or writes behind
/// the last of them dies there, with or without a sanitizer. They begin wherever that puts them.
template <class T>
class Guarded {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit Guarded(std::size_t count) : count_(count) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t usable = (count * sizeof(T) + page - 1) / page * page;
    bytes_ = usable + page;
    start_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start_ == MAP_FAILED) throw std::runtime_error("no memory for a guarded array");
    auto* const end = static_cast<std::byte*>(start_) + usable;
    if (mprotect(end, page, PROT_NONE) != 0) throw std::runtime_error("no page can be guarded");
    data_ = reinterpret_cast<T*>(end - count * sizeof(T));
  }
  explicit Guarded(std::span<const T> values) : Guarded(values.size()) {
    if (count_ > 0) std::memcpy(data_, values.data(), values.size_bytes());
  }
  Guarded(std::initializer_list<T> values) : Guarded(std::span<const T>(values.begin(), values.size())) {}
  ~Guarded() { munmap(start_, bytes_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return count_; }
  T* begin() { return data_; }
  T* end() { return data_ + count_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + count_; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  std::span<T> first(std::size_t count) { return std::span<T>(data_, count_).first(count); }

 private:
  std::size_t count_;
  std::size_t bytes_ = 0;
  void* start_ = nullptr;
  T* data_ = nullptr;
};

}  // namespace topksoftmax::testing
