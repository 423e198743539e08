// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace topksoftmax::bench {

/// hnswlib, compiled for this very machine, in a shared library of its own as Eigen is: hnswlib is all
/// templates, and the program has another copy of them.
class [[gnu::visibility("default")]] NativeHnsw {
 public:
  enum class Space { inner_product, l2 };

  /// Inserts `count` points of `dim` floats, one after the other.
  NativeHnsw(const float* points, std::size_t count, std::size_t dim, Space space, std::size_t M,
             std::size_t ef_construction, std::size_t seed);
  ~NativeHnsw();
  NativeHnsw(const NativeHnsw&) = delete;
  NativeHnsw& operator=(const NativeHnsw&) = delete;

  /// The k nearest points and their distances, the nearest first; returns how many. hnswlib keeps ef in the
  /// graph, so a search with another one waits until all others have ended.
  std::size_t search(const float* query, std::size_t k, std::size_t ef, std::int64_t* ids, float* distances)
      const;

  std::size_t bytes() const;

 private:
  struct Graph;
  std::unique_ptr<Graph> graph_;
};

}  // namespace topksoftmax::bench
