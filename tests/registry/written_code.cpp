// SPDX-License-Identifier: Apache-2.0
//
// Written by standard_registry_test.cpp: the calls that the descriptions write.
// clang-format off
#include "registry/written_code.hpp"

#include "topksoftmax/adaptive/build.hpp"
#include "topksoftmax/baselines/build_greedy_mips.hpp"
#include "topksoftmax/baselines/build_lsh_mips.hpp"
#include "topksoftmax/baselines/build_pca_mips.hpp"
#include "topksoftmax/baselines/build_wta_lsh_each.hpp"
#include "topksoftmax/certified/build.hpp"
#include "topksoftmax/exact.hpp"
#include "topksoftmax/fgd/build.hpp"
#include "topksoftmax/fused.hpp"
#include "topksoftmax/l2s/build.hpp"
#include "topksoftmax/quantized/build.hpp"
#include "topksoftmax/row_clusters/build.hpp"
#include "topksoftmax/shortlist/build.hpp"
#include "topksoftmax/svd/build.hpp"
#include "topksoftmax/wta/build.hpp"

namespace topksoftmax::testing {

std::vector<std::shared_ptr<const TopKSoftmax>> make_as_written(
    const SoftmaxLayer& layer, const RowMajorMatrix& contexts, const std::vector<std::int64_t>& counts) {
  std::vector<std::shared_ptr<const TopKSoftmax>> all;
  all.push_back(Exact::make(layer));
  all.push_back(Fused::make(layer));
  all.push_back(L2S::train(layer, contexts));
  all.push_back(L2S::train(layer, contexts, {.clusters = 100, .budget = 100, .lambda = 3e-04, .kmeans_iterations = 15, .label_count = 5, .label_depth = 16, .near_miss_value = 1, .near_miss_temperature = 1, .seed = 1, .gamma = 10, .temperature = 1, .rounds = 5, .epochs = 2, .batch_size = 512, .learning_rate = 0.05, .sharpness = 0.8, .prior = 1, .outside_sample = 15000}));
  all.push_back(L2S::train_kmeans(layer, contexts));
  all.push_back(L2S::train_kmeans(layer, contexts, {.clusters = 100, .budget = 100, .lambda = 3e-04, .kmeans_iterations = 15, .label_count = 5, .label_depth = 16, .near_miss_value = 1, .near_miss_temperature = 1, .seed = 1, .prior = 1, .outside_sample = 15000}));
  all.push_back(Fgd::build(layer, contexts));
  all.push_back(Fgd::build(layer, contexts, {.M = 16, .ef_construction = 200, .ef_search = 100, .seed = 1, .entry_points = 16, .context_sample = 2000, .outside_sample = 5000}));
  all.push_back(SvdSoftmax::build(layer));
  all.push_back(SvdSoftmax::build(layer, {.preview_width = 3, .refine_width = 3}));
  all.push_back(RowClusters::build(layer, contexts));
  all.push_back(RowClusters::build(layer, contexts, {.clusters = 3, .visited = 3, .balance = 1.5, .iterations = 15, .seed = 1, .outside_sample = 5000}));
  all.push_back(AdaptiveSoftmax::build(layer, contexts));
  all.push_back(AdaptiveSoftmax::build(layer, contexts, {.head = 3, .tail_tiers = 16, .caution = 0.99, .context_sample = 8000, .outside_sample = 5000, .counts = counts}));
  all.push_back(GreedyMips::build(layer, contexts));
  all.push_back(GreedyMips::build(layer, contexts, {.budget = 3, .outside_sample = 5000}));
  all.push_back(PcaMips::build(layer, contexts));
  all.push_back(PcaMips::build(layer, contexts, {.depth = 7, .leaves = 0, .outside_sample = 5000}));
  all.push_back(LshMips::build(layer, contexts));
  all.push_back(LshMips::build(layer, contexts, {.tables = 64, .bits = 10, .probes = 1, .seed = 1, .outside_sample = 5000}));
  all.push_back(WtaLsh::build(layer, contexts));
  all.push_back(WtaLsh::build(layer, contexts, {.hash = {.K = 8, .units_per_band = 3, .bands = 500, .seed = 1}, .threshold = 5, .top_frequent = 3, .outside_sample = 5000, .counts = counts}));
  all.push_back(WtaLshEach::build(layer, contexts));
  all.push_back(WtaLshEach::build(layer, contexts, {.hash = {.K = 8, .units_per_band = 3, .bands = 500, .seed = 1}, .top_collisions = 3, .outside_sample = 5000}));
  all.push_back(Shortlist::build(layer, contexts));
  all.push_back(Shortlist::build(layer, contexts, {.top_frequent = 3, .outside_sample = 5000, .counts = counts}));
  all.push_back(Quantized::build(layer));
  all.push_back(Quantized::build(layer, {.refine_width = 32}));
  all.push_back(Certified::build(layer, contexts));
  all.push_back(Certified::build(layer, contexts, {.prefix = 0, .int4_width = 0, .int2_width = 0, .width = 0, .context_sample = 20000, .expected_k = 5, .coordinates = BoundCoordinates::balanced, .boxes = BoundBoxes::automatic, .box_width = 0, .failure_probability = 0, .dither_seed = 1, .outside_sample = 20000}));
  all.push_back(Certify::wrap(L2S::train_kmeans(layer, contexts, {.clusters = 16, .budget = 12, .outside_sample = 0}), contexts));
  all.push_back(Certify::wrap(L2S::train_kmeans(layer, contexts, {.clusters = 16, .budget = 12, .outside_sample = 0}), contexts, {.prefix = 0, .width = 0, .expected_k = 5}));
  all.push_back(Certify::wrap(Shortlist::build(layer, contexts, {.outside_sample = 0}), contexts));
  all.push_back(Certify::wrap(Shortlist::build(layer, contexts, {.top_frequent = 3, .outside_sample = 0, .counts = counts}), contexts, {.prefix = 0, .int4_width = 0, .int2_width = 0, .width = 0, .context_sample = 20000, .expected_k = 5, .coordinates = BoundCoordinates::balanced, .boxes = BoundBoxes::automatic, .box_width = 0, .failure_probability = 0, .dither_seed = 1, .outside_sample = 20000}));
  return all;
}

}  // namespace topksoftmax::testing
