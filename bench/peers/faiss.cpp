// SPDX-License-Identifier: Apache-2.0
//
// faiss's indexes for inner products. Debian compiles faiss for any x86-64, and faiss chooses no kernels at
// run time, so these rows show what its users get there, not what a faiss built for this machine could do.
#include <faiss/IndexFlat.h>
#include <faiss/IndexHNSW.h>
#include <faiss/IndexIVFFlat.h>
#include <faiss/IndexScalarQuantizer.h>

#include <algorithm>
#include <limits>

#include "peers/describe_peer.hpp"
#include "peers/one_thread.hpp"
#include "peers/peers.hpp"
#include "peers/point_peer.hpp"
#include "topksoftmax/registry/axes.hpp"

namespace topksoftmax::bench {
namespace {

/// A faiss index, and where it keeps what a query's effort is. (Its graph's search takes a part of that from
/// the index whatever the query's own parameters say, and finds nothing more with a longer queue.)
template <class Index>
class FaissIndex final : public PointIndex {
 public:
  using SetEffort = void (*)(Index&, std::size_t);

  FaissIndex(std::unique_ptr<Index> index, const RowMajorMatrix& points, SetEffort set_effort,
             std::size_t bytes, const QueryWork& work = {})
      : index_(std::move(index)), set_effort_(set_effort), bytes_(bytes), work_(work) {
    index_->train(points.rows(), points.data());
    index_->add(points.rows(), points.data());
  }

  std::size_t search(const float* query, std::size_t k, std::size_t effort, std::int64_t* ids,
                     float* products) const override {
    const OneThread one_thread;
    if (set_effort_ != nullptr) set_effort_(*index_, effort);
    index_->search(1, query, static_cast<faiss::Index::idx_t>(k), products, ids);
    return static_cast<std::size_t>(std::find(ids, ids + k, -1) - ids);
  }
  std::size_t bytes() const override { return bytes_; }
  QueryWork work() const override { return work_; }

 private:
  std::unique_ptr<Index> index_;
  SetEffort set_effort_;
  std::size_t bytes_;
  QueryWork work_;
};

struct IvfOptions {
  std::size_t lists = 128;
  std::size_t nprobe = 16;

  template <class Self, class Visit>
  static void visit(Self& options, Visit&& visit) {
    visit("lists", options.lists, "clusters of rows", at_least(1));
    visit("nprobe", options.nprobe, "of these that a query visits", at_least(1));
  }
};

/// The most that faiss takes as an int.
constexpr double kMost = std::numeric_limits<int>::max();

struct HnswOptions {
  std::size_t M = 16;
  std::size_t ef_construction = 200;
  std::size_t ef_search = 100;

  template <class Self, class Visit>
  static void visit(Self& options, Visit&& visit) {
    visit("M", options.M, "links of a row", at_least(2).and_at_most(1024));
    visit("ef_construction", options.ef_construction, "rows looked at to find these",
          at_least(1).and_at_most(kMost));
    visit("ef_search", options.ef_search, "length of a query's candidate queue",
          at_least(1).and_at_most(kMost));
  }
};

std::size_t float_bytes(const RowMajorMatrix& points) {
  return static_cast<std::size_t>(points.size()) * sizeof(float);
}

/// Of points in lists: their ids and the lists' centroids too.
std::size_t inverted_bytes(const RowMajorMatrix& points, std::size_t lists) {
  const auto count = static_cast<std::size_t>(points.rows());
  const auto dim = static_cast<std::size_t>(points.cols());
  return float_bytes(points) + count * sizeof(faiss::Index::idx_t) + lists * dim * sizeof(float);
}

/// Of points in a graph: the links of the ground too. (Those of its upper layers are a few in a hundred.)
std::size_t graph_bytes(const RowMajorMatrix& points, std::size_t M) {
  return float_bytes(points) + static_cast<std::size_t>(points.rows()) * 2 * M * sizeof(std::int32_t);
}

int dimension(const RowMajorMatrix& points) {
  return static_cast<int>(points.cols());
}

}  // namespace

BackendDescription faiss_flat_peer() {
  return describe_peer<NoOptions>(
      "peer:faiss-flat", "faiss's exact search (IndexFlatIP)", [](const BuildMaterial& from, NoOptions) {
        const RowMajorMatrix points = biased_rows(from.layer);
        const std::size_t bytes = float_bytes(points);
        using Flat = FaissIndex<faiss::IndexFlatIP>;
        return std::make_unique<PointPeer>(
            from.layer, "peer:faiss-flat",
            std::make_unique<Flat>(std::make_unique<faiss::IndexFlatIP>(points.cols()), points, nullptr,
                                   bytes, QueryWork{.bytes_read = bytes, .candidates = from.layer.vocab()}),
            1);
      });
}

BackendDescription faiss_ivf_peer() {
  using Options = IvfOptions;
  return describe_peer<Options>(
      "peer:faiss-ivf", "faiss's inverted lists (IndexIVFFlat)",
      [](const BuildMaterial& from, const Options& options) {
        /// An index that owns its quantiser.
        struct Owned : faiss::IndexIVFFlat {
          Owned(std::unique_ptr<faiss::IndexFlatIP> lists, std::size_t dim, std::size_t count)
              : IndexIVFFlat(lists.get(), dim, count, faiss::METRIC_INNER_PRODUCT), owner(std::move(lists)) {
            cp.min_points_per_centroid = 1;
          }
          std::unique_ptr<faiss::IndexFlatIP> owner;
        };
        const RowMajorMatrix points = biased_rows(from.layer);
        const std::size_t lists = std::min(options.lists, from.layer.vocab());
        using Ivf = FaissIndex<Owned>;
        auto index = std::make_unique<Owned>(std::make_unique<faiss::IndexFlatIP>(points.cols()),
                                             static_cast<std::size_t>(points.cols()), lists);
        return std::make_unique<PointPeer>(
            from.layer, "peer:faiss-ivf",
            std::make_unique<Ivf>(
                std::move(index), points,
                [](Owned& inverted, std::size_t effort) { inverted.nprobe = effort; },
                inverted_bytes(points, lists)),
            options.nprobe);
      },
      {.option = "nprobe", .values = axis::listed({1, 2, 4, 8, 16, 32, 64}), .effort = axis::value_itself});
}

BackendDescription faiss_hnsw_peer() {
  using Options = HnswOptions;
  return describe_peer<Options>(
      "peer:faiss-hnsw", "faiss's small world graph (IndexHNSWFlat)",
      [](const BuildMaterial& from, const Options& options) {
        const RowMajorMatrix points = biased_rows(from.layer);
        auto index = std::make_unique<faiss::IndexHNSWFlat>(dimension(points), static_cast<int>(options.M),
                                                            faiss::METRIC_INNER_PRODUCT);
        index->hnsw.efConstruction = static_cast<int>(options.ef_construction);
        using Hnsw = FaissIndex<faiss::IndexHNSWFlat>;
        return std::make_unique<PointPeer>(from.layer, "peer:faiss-hnsw",
                                           std::make_unique<Hnsw>(
                                               std::move(index), points,
                                               [](faiss::IndexHNSWFlat& graph, std::size_t effort) {
                                                 graph.hnsw.efSearch = static_cast<int>(effort);
                                               },
                                               graph_bytes(points, options.M)),
                                           options.ef_search);
      },
      {.option = "ef_search", .values = axis::short_lists(), .effort = axis::value_itself});
}

BackendDescription faiss_sq8_peer() {
  return describe_peer<NoOptions>(
      "peer:faiss-sq8", "faiss's scan of 8-bit rows (IndexScalarQuantizer)",
      [](const BuildMaterial& from, NoOptions) {
        const RowMajorMatrix points = biased_rows(from.layer);
        const auto bytes = static_cast<std::size_t>(points.size());
        using Sq8 = FaissIndex<faiss::IndexScalarQuantizer>;
        return std::make_unique<PointPeer>(
            from.layer, "peer:faiss-sq8",
            std::make_unique<Sq8>(
                std::make_unique<faiss::IndexScalarQuantizer>(
                    dimension(points), faiss::ScalarQuantizer::QT_8bit, faiss::METRIC_INNER_PRODUCT),
                points, nullptr, bytes, QueryWork{.bytes_read = bytes, .screened = from.layer.vocab()}),
            1);
      });
}

}  // namespace topksoftmax::bench
