// SPDX-License-Identifier: Apache-2.0
#include "peers/native_hnswlib.hpp"

#include <hnswlib/hnswlib.h>

#include <mutex>
#include <shared_mutex>

namespace topksoftmax::bench {

struct NativeHnsw::Graph {
  Graph(std::size_t count, std::size_t dim, Space space, std::size_t M, std::size_t ef_construction,
        std::size_t seed)
      : inner_product(dim),
        l2(dim),
        hnsw(space == Space::l2 ? static_cast<hnswlib::SpaceInterface<float>*>(&l2) : &inner_product, count,
             M, ef_construction, seed),
        bytes(count * (dim * sizeof(float) + (2 * M + 2) * sizeof(unsigned))) {}

  hnswlib::InnerProductSpace inner_product;
  hnswlib::L2Space l2;
  hnswlib::HierarchicalNSW<float> hnsw;
  std::size_t bytes;
  std::shared_mutex mutex;
};

NativeHnsw::NativeHnsw(const float* points, std::size_t count, std::size_t dim, Space space, std::size_t M,
                       std::size_t ef_construction, std::size_t seed)
    : graph_(std::make_unique<Graph>(count, dim, space, M, ef_construction, seed)) {
  for (std::size_t i = 0; i < count; ++i) graph_->hnsw.addPoint(points + i * dim, i);
}

NativeHnsw::~NativeHnsw() = default;

std::size_t NativeHnsw::search(const float* query, std::size_t k, std::size_t ef, std::int64_t* ids,
                               float* distances) const {
  std::shared_lock searching(graph_->mutex);
  while (graph_->hnsw.ef_ != ef) {
    searching.unlock();
    {
      const std::unique_lock setting(graph_->mutex);
      graph_->hnsw.setEf(ef);
    }
    searching.lock();
  }
  auto nearest = graph_->hnsw.searchKnn(query, k);
  const std::size_t found = nearest.size();
  for (std::size_t i = found; i-- > 0; nearest.pop()) {
    ids[i] = static_cast<std::int64_t>(nearest.top().second);
    distances[i] = nearest.top().first;
  }
  return found;
}

std::size_t NativeHnsw::bytes() const {
  return graph_->bytes;
}

}  // namespace topksoftmax::bench
