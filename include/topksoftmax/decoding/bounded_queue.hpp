// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <vector>

#include "topksoftmax/config.hpp"

namespace TOPKSOFTMAX_NAMESPACE::detail {

/// Hands values from one thread to one other, at most `capacity` of them waiting.
template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t capacity) : capacity_(capacity) {}

  /// Waits until there is room. False, and the value is dropped, once the queue is closed.
  bool push(const T& value) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closed_ || values_.size() < capacity_; });
    if (closed_) return false;
    values_.push_back(value);
    changed_.notify_all();
    return true;
  }

  /// Waits until there is a value. False once the queue is closed and empty.
  bool wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closed_ || !values_.empty(); });
    return !values_.empty();
  }

  /// Appends up to `most` of the values that are there to `into`.
  void take(std::size_t most, std::vector<T>& into) {
    const std::lock_guard lock(mutex_);
    const auto end = values_.begin() + static_cast<std::ptrdiff_t>(std::min(most, values_.size()));
    into.insert(into.end(), values_.begin(), end);
    values_.erase(values_.begin(), end);
    changed_.notify_all();
  }

  /// Wakes all who wait, for good. What is in it can still be taken.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<T> values_;
  std::size_t capacity_;
  bool closed_ = false;
};

}  // namespace TOPKSOFTMAX_NAMESPACE::detail
