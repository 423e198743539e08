// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "peers/describe_peer.hpp"
#include "peers/native_hnswlib.hpp"
#include "peers/peers.hpp"
#include "peers/point_peer.hpp"
#include "topksoftmax/registry/axes.hpp"
#include "topksoftmax/rows/ippt.hpp"

namespace topksoftmax::bench {
namespace {

struct HnswOptions {
  std::size_t M = 16;
  std::size_t ef_construction = 200;
  std::size_t ef = 100;
  std::size_t seed = 1;

  template <class Self, class Visit>
  static void visit(Self& options, Visit&& visit) {
    visit("M", options.M, "links of a point", at_least(2).and_at_most(1024));
    visit("ef_construction", options.ef_construction, "points looked at to find these", at_least(1));
    visit("ef", options.ef, "length of a query's candidate queue", at_least(1));
    visit("seed", options.seed, "of the graph's layers");
  }
};

/// hnswlib's own space for inner products.
class InnerProductGraph final : public PointIndex {
 public:
  InnerProductGraph(const SoftmaxLayer& layer, const HnswOptions& options)
      : graph_(biased_rows(layer).data(), layer.vocab(), layer.dim() + 1, NativeHnsw::Space::inner_product,
               options.M, options.ef_construction, options.seed) {}

  std::size_t search(const float* query, std::size_t k, std::size_t effort, std::int64_t* ids,
                     float* products) const override {
    const std::size_t found = graph_.search(query, k, effort, ids, products);
    for (std::size_t i = 0; i < found; ++i) products[i] = 1.0F - products[i];
    return found;
  }
  std::size_t bytes() const override { return graph_.bytes(); }

 private:
  NativeHnsw graph_;
};

/// Its L2 search over what Fgd searches: rows by Ippt, of length 1, inserted in the same order.
class EuclideanGraph final : public PointIndex {
 public:
  EuclideanGraph(const SoftmaxLayer& layer, const HnswOptions& options)
      : ippt_(layer),
        graph_(points().data(), layer.vocab(), ippt_.dim(), NativeHnsw::Space::l2, options.M,
               options.ef_construction, options.seed) {}

  std::size_t search(const float* query, std::size_t k, std::size_t effort, std::int64_t* ids,
                     float* products) const override {
    thread_local std::vector<float> context;
    context.assign(query, query + ippt_.dim() - 1);
    context.push_back(0.0F);
    const std::size_t found = graph_.search(context.data(), k, effort, ids, products);
    double norm = 0.0;
    for (const float x : context) norm += static_cast<double>(x) * static_cast<double>(x);
    for (std::size_t i = 0; i < found; ++i) {  // ρ² = 1 + ‖h̄‖² − 2·logit/U
      products[i] =
          static_cast<float>(0.5 * ippt_.radius() * (1.0 + norm - static_cast<double>(products[i])));
    }
    return found;
  }
  std::size_t bytes() const override { return graph_.bytes(); }

 private:
  RowMajorMatrix points() const {
    const std::size_t vocab = ippt_.vocab();
    RowMajorMatrix all(static_cast<Eigen::Index>(vocab), static_cast<Eigen::Index>(ippt_.dim()));
    Eigen::RowVectorXd row(all.cols());
    for (Eigen::Index token = 0; token < all.rows(); ++token) {
      ippt_.transform_row(static_cast<std::size_t>(token), row.data());
      all.row(token) = (row / ippt_.radius()).cast<float>();
    }
    return all;
  }

  Ippt ippt_;
  NativeHnsw graph_;
};

template <class Graph>
BackendDescription graph_peer(const std::string& name, std::string summary) {
  return describe_peer<HnswOptions>(
      name, std::move(summary),
      [name](const BuildMaterial& from, const HnswOptions& options) {
        return std::make_unique<PointPeer>(from.layer, name, std::make_unique<Graph>(from.layer, options),
                                           options.ef);
      },
      {.option = "ef", .values = axis::short_lists(), .effort = axis::value_itself});
}

}  // namespace

BackendDescription hnswlib_peer() {
  return graph_peer<InnerProductGraph>("peer:hnswlib",
                                       "hnswlib's search by inner products, compiled for this machine");
}

BackendDescription hnswlib_l2_peer() {
  return graph_peer<EuclideanGraph>(
      "peer:hnswlib-l2", "hnswlib's L2 search over fgd's points and graph, compiled for this machine");
}

}  // namespace topksoftmax::bench
