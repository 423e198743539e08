// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/screeners/l2s.hpp"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "io/index_reader.hpp"
#include "io/index_writer.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/kernels/implementation.hpp"
#include "training/check_contexts.hpp"
#include "training/exact_labels.hpp"
#include "training/l2s_options.hpp"

namespace topksoftmax {
namespace {

constexpr std::string_view kKind = "l2s";

/// The options that an index file records.
template <class Options, class Visit>
void visit_options(Options& options, const Visit& visit) {
  visit("clusters", options.clusters);
  visit("budget", options.budget);
  visit("lambda", options.lambda);
  visit("gamma", options.gamma);
  visit("temperature", options.temperature);
  visit("rounds", options.rounds);
  visit("epochs", options.epochs);
  visit("kmeans_iterations", options.kmeans_iterations);
  visit("batch_size", options.batch_size);
  visit("learning_rate", options.learning_rate);
  visit("sharpness", options.sharpness);
  visit("label_count", options.label_count);
  visit("label_depth", options.label_depth);
  visit("near_miss_value", options.near_miss_value);
  visit("near_miss_temperature", options.near_miss_temperature);
  visit("seed", options.seed);
}

}  // namespace

L2SScreener::L2SScreener(L2SModel model, L2SOptions options, std::size_t vocab, std::size_t dim,
                         std::string name)
    : model_(std::move(model)),
      options_(std::move(options)),
      vocab_(vocab),
      dim_(dim),
      name_(std::move(name)) {
  options_.progress = {};  // whom it tells may not live as long
}

kernels::Rows L2SScreener::clusters() const {
  kernels::Rows rows;
  rows.data = model_.v.data();
  rows.count = model_.clusters;
  rows.dim = rows.stride = dim_;
  return rows;
}

Candidates L2SScreener::screen(const Query& query, Workspace& workspace) const {
  const kernels::Rows rows = clusters();
  const kernels::Implementation& kernel = kernels::active();
  Candidates candidates;
  candidates.screened = rows.count;
  candidates.bytes_read = rows.bytes(rows.count);
  if (query.effort <= 1) {
    candidates.ids = model_.sets.of(kernel.argmax(rows, query.h));
    return candidates;
  }
  if (query.effort >= rows.count) {
    candidates.everything = true;
    return candidates;
  }

  auto* const products = workspace.screen[0].get<float>(rows.count);
  kernel.scan(rows, 0, rows.count, query.h, products);
  kernels::TopKHeap best(workspace.screen[1].get<ScoredToken>(query.effort), query.effort);
  kernel.select(products, nullptr, rows.count, best);
  const std::span<const ScoredToken> visited = best.sort();
  std::size_t room = 0;
  for (const ScoredToken& cluster : visited)
    room += model_.sets.of(static_cast<std::size_t>(cluster.id)).size();
  auto* const ids = workspace.candidates.get<TokenId>(room);
  std::size_t count = 0;
  workspace.seen.clear(vocab_);
  for (const ScoredToken& cluster : visited) {
    for (const TokenId id : model_.sets.of(static_cast<std::size_t>(cluster.id))) {
      if (workspace.seen.insert(id)) ids[count++] = id;
    }
  }
  candidates.ids = {ids, count};
  return candidates;
}

std::size_t L2SScreener::index_bytes() const {
  return model_.v.size() * sizeof(float) + model_.sets.ids.size() * sizeof(TokenId) +
         model_.sets.offsets.size() * sizeof(std::size_t);
}

void L2SScreener::save(IndexWriter& out) const {
  out.kind(kKind);
  out.option("name", name_);
  visit_options(options_, out.options());
  out.array("clusters", {model_.clusters, dim_}, StoredArray<float>::borrow(model_.v));
  std::vector<std::uint64_t> offsets(model_.sets.offsets.begin(), model_.sets.offsets.end());
  out.array("offsets", {offsets.size()}, StoredArray<std::uint64_t>::own(offsets));
  out.array("ids", {model_.sets.ids.size()}, StoredArray<TokenId>::borrow(model_.sets.ids));
  std::vector<double> history;
  for (const ScreeningLoss& loss : model_.history) {
    history.insert(history.end(), {loss.objective, loss.missed, loss.set_size});
  }
  out.array("history", {model_.history.size(), 3}, StoredArray<double>::own(history));
}

std::unique_ptr<L2S> L2S::load(const std::filesystem::path& path, SoftmaxLayer layer) {
  return load(IndexReader::open(path, std::move(layer), kKind));
}

std::unique_ptr<L2S> L2S::load(const IndexReader& in) {
  std::string name;
  in.option("name", name);
  L2SOptions options;
  visit_options(options, in.options());
  L2SModel model;
  const StoredArray<float> v = in.floats("clusters", {IndexReader::any, in.dim()});
  if (v.size() == 0) throw in.damaged("clusters", "has no cluster");
  model.v.assign(v.begin(), v.end());
  model.clusters = v.size() / in.dim();
  const StoredArray<TokenId> ids = in.tokens("ids", {IndexReader::any});
  model.sets.ids.assign(ids.begin(), ids.end());
  const StoredArray<std::uint64_t> offsets = in.offsets("offsets", {model.clusters + 1}, ids.size());
  model.sets.offsets.assign(offsets.begin(), offsets.end());
  for (std::size_t t = 0; t < model.clusters; ++t) {
    const std::span<const TokenId> set = model.sets.of(t);
    if (std::adjacent_find(set.begin(), set.end(), std::greater_equal<>()) != set.end()) {
      throw in.damaged("ids", "are not ascending in the set of cluster " + std::to_string(t));
    }
  }
  const StoredArray<double> history = in.doubles("history", {IndexReader::any, 3});
  for (std::size_t i = 0; i < history.size(); i += 3) {
    model.history.push_back({history[i], history[i + 1], history[i + 2]});
  }
  L2SScreener screener(std::move(model), std::move(options), in.vocab(), in.dim(), std::move(name));
  return std::unique_ptr<L2S>(new L2S(in.layer(), std::move(screener)));
}

std::unique_ptr<L2S> L2S::train(SoftmaxLayer layer, const Contexts& contexts, const L2SOptions& options,
                                std::string_view name) {
  check_contexts(layer, contexts, "l2s");
  topksoftmax::check(options);
  if (options.progress) options.progress("labelling the contexts", 0.0);
  const Labels labels = exact_labels(layer, contexts, options.label_count, options.label_depth,
                                     options.near_miss_value, options.near_miss_temperature);
  L2SScreener screener(train_l2s(contexts, labels, options), options, layer.vocab(), layer.dim(),
                       std::string(name));
  return std::unique_ptr<L2S>(new L2S(std::move(layer), std::move(screener)));
}

}  // namespace topksoftmax
