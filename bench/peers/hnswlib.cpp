// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "peers/native_hnswlib.hpp"
#include "peers/peers.hpp"
#include "peers/point_peer.hpp"
#include "topksoftmax/evaluation/sweep.hpp"
#include "topksoftmax/screeners/ippt.hpp"

namespace topksoftmax::bench {
namespace {

struct HnswOptions {
  std::size_t M = 16;
  std::size_t ef_construction = 200;
  std::size_t ef = 100;
  std::size_t seed = 1;
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
Backend graph_peer(const std::string& name, std::string summary) {
  using Options = HnswOptions;
  return make_backend<Options>(
      name, std::move(summary),
      {field("M", &Options::M, "links of a point"),
       field("ef_construction", &Options::ef_construction, "points looked at to find these"),
       field("ef", &Options::ef, "length of a query's candidate queue"),
       field("seed", &Options::seed, "of the graph's layers")},
      [name](const Head& head, const Options& options, const TrainingProgress&) {
        return std::make_unique<PointPeer>(head.layer, name, std::make_unique<Graph>(head.layer, options),
                                           options.ef);
      },
      {{.parameter = "ef",
        .values =
            [](const Head& head) {
              return geometric(10, std::max<std::size_t>(head.layer.vocab() / 20, 20), 9);
            },
        .effort = [](const nlohmann::json& values) { return values.at("ef").get<std::size_t>(); }}});
}

}  // namespace

Backend hnswlib_peer() {
  return graph_peer<InnerProductGraph>("peer:hnswlib",
                                       "hnswlib's search by inner products, compiled for this machine");
}

Backend hnswlib_l2_peer() {
  return graph_peer<EuclideanGraph>(
      "peer:hnswlib-l2", "hnswlib's L2 search over fgd's points and graph, compiled for this machine");
}

}  // namespace topksoftmax::bench
