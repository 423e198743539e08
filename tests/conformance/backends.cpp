// SPDX-License-Identifier: Apache-2.0
#include "conformance/backends.hpp"

#include <algorithm>

#include "topksoftmax/topksoftmax.hpp"

namespace topksoftmax::testing {

namespace {

L2SOptions small_l2s() {
  L2SOptions options;
  options.clusters = 8;
  options.budget = 60;
  options.rounds = 2;
  return options;
}

}  // namespace

const std::vector<Backend>& all_backends() {
  static const std::vector<Backend> all = {
      {.name = "exact",
       .make = [](const auto& layer, const auto&) { return Exact::make(layer); },
       .exact = true},
      {.name = "fused",
       .make = [](const auto& layer, const auto&) { return Fused::make(layer); },
       .exact = true},
      {.name = "l2s",
       .make = [](const auto& layer,
                  const auto& contexts) { return L2S::train(layer, contexts, small_l2s()); }},
      {.name = "l2s-kmeans",
       .make = [](const auto& layer,
                  const auto& contexts) { return L2S::train_kmeans(layer, contexts, small_l2s()); }},
      {.name = "fgd",
       .make = [](const auto& layer,
                  const auto& contexts) { return Fgd::build(layer, contexts, {.ef_search = 20}); }},
      {.name = "svd", .make = [](const auto& layer, const auto&) { return SvdSoftmax::build(layer); }},
      {.name = "adaptive",
       .make = [](const auto& layer,
                  const auto& contexts) { return AdaptiveSoftmax::build(layer, contexts); }},
      {.name = "greedy-mips",
       .make = [](const auto& layer, const auto&) { return GreedyMips::build(layer); }},
      {.name = "pca-mips",
       .make = [](const auto& layer, const auto&) { return PcaMips::build(layer, {.depth = 4}); }},
      {.name = "lsh-mips",
       .make = [](const auto& layer,
                  const auto&) { return LshMips::build(layer, {.tables = 8, .bits = 5, .probes = 3}); }},
      {.name = "shortlist", .make = [](const auto& layer, const auto&) { return Shortlist::build(layer); }},
      {.name = "quantized", .make = [](const auto& layer, const auto&) { return Quantized::build(layer); }},
      {.name = "certified",
       .make =
           [](const auto& layer, const auto& contexts) {
             return Certified::build(layer, contexts, {.width = 16, .boxes = BoundBoxes::never});
           },
       .exact = true},
      {.name = "certify:shortlist",
       .make =
           [](const auto& layer, const auto& contexts) {
             return Certify::wrap(Shortlist::build(layer), contexts, {.width = 16});
           },
       .exact = true},
      {.name = "wta-lsh",
       .make = [](const auto& layer, const auto&) { return WtaLsh::build(layer, {.hash = {.bands = 60}}); },
       .shares_batch = true},
      {.name = "wta-lsh-each",
       .make = [](const auto& layer,
                  const auto&) { return WtaLshEach::build(layer, {.hash = {.bands = 60}}); }},
      {.name = "certified-boxes",
       .make =
           [](const auto& layer, const auto& contexts) {
             return Certified::build(layer, contexts, {.width = 16, .boxes = BoundBoxes::always});
           },
       .system = "certified",
       .exact = true},
      {.name = "certified-long-tails",
       .make =
           [](const auto& layer, const auto& contexts) {
             return Certified::build(layer, contexts, {.prefix = 4, .width = 64});
           },
       .system = "certified",
       .exact = true},
  };
  return all;
}

std::string suite_name(const Backend& backend) {
  std::string name = backend.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == ':'; }, '_');
  return name;
}

}  // namespace topksoftmax::testing
