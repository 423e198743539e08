// SPDX-License-Identifier: Apache-2.0
#include "screeners/small_world_graph.hpp"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <iostream>
#include <limits>
#include <list>
#include <mutex>
#include <random>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "io/index_reader.hpp"
#include "io/index_writer.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/kernels/implementation.hpp"
#include "topksoftmax/screeners/ippt.hpp"

// hnswlib is all templates and inline functions: under its own name, the linker would mix ours with those of
// a program that uses another version of it, or other compiler flags. Without NO_MANUAL_VECTORIZATION it
// would also define functions in the global namespace. Its warnings, of options that we refuse before, would
// be printed: they go to a stream that leads nowhere.
#define hnswlib topksoftmax_hnswlib
#define NO_MANUAL_VECTORIZATION
#define cerr ostream(nullptr)
#include <hnswlib/hnswlib.h>
#undef cerr

namespace topksoftmax {
namespace {

constexpr const char* kUpperLayers = "upper_layers";
constexpr const char* kGround = "ground";

/// The name of the i-th upper layer's tensors.
std::string upper_name(std::size_t i) {
  return "upper." + std::to_string(i);
}

/// What hnswlib measures distances with: our kernel.
class KernelSpace final : public hnswlib::SpaceInterface<float> {
 public:
  explicit KernelSpace(std::size_t dim) : kernel_(kernels::active().squared_distance), dim_(dim) {}

  std::size_t get_data_size() override { return dim_ * sizeof(float); }
  hnswlib::DISTFUNC<float> get_dist_func() override { return &distance; }
  void* get_dist_func_param() override { return this; }

  static float distance(const void* a, const void* b, const void* space) {
    const auto* const self = static_cast<const KernelSpace*>(space);
    return self->kernel_(static_cast<const float*>(a), static_cast<const float*>(b), self->dim_);
  }

 private:
  decltype(kernels::Implementation::squared_distance) kernel_;
  std::size_t dim_;
};

/// HNSW while it is built, and then taken apart.
class Hnsw {
 public:
  Hnsw(const SoftmaxLayer& layer, const SmallWorldOptions& options)
      : ippt_(layer),
        space_(ippt_.dim()),
        graph_(&space_, layer.vocab(), options.M, options.ef_construction, options.seed) {
    // x̄/U, of length 1, has the same neighbours as x̄ and no distances that overflow.
    const double scale = ippt_.radius() > 0.0 ? 1.0 / ippt_.radius() : 1.0;
    std::vector<double> transformed(ippt_.dim());
    std::vector<float> point(ippt_.dim());
    for (std::size_t token = 0; token < layer.vocab(); ++token) {
      ippt_.transform_row(token, transformed.data());
      std::transform(transformed.begin(), transformed.end(), point.begin(),
                     [scale](double x) { return static_cast<float>(x * scale); });
      graph_.addPoint(point.data(), token);  // so its own numbers are the tokens
    }
  }

  std::size_t vocab() const { return graph_.cur_element_count; }
  TokenId entry() const { return static_cast<TokenId>(graph_.enterpoint_node_); }
  int top_level() const { return graph_.maxlevel_; }

  float distance(TokenId a, TokenId b) const {
    return KernelSpace::distance(point(a), point(b), graph_.dist_func_param_);
  }

  /// The links of every row that is in this layer, ground 0.
  std::vector<std::vector<TokenId>> links(int level) const {
    std::vector<std::vector<TokenId>> of_rows(vocab());
    for (std::size_t row = 0; row < vocab(); ++row) {
      if (graph_.element_levels_[row] < level) continue;
      hnswlib::linklistsizeint* const list =
          graph_.get_linklist_at_level(static_cast<hnswlib::tableint>(row), level);
      const hnswlib::tableint* const targets = list + 1;
      of_rows[row].assign(targets, targets + graph_.getListCount(list));
    }
    return of_rows;
  }

 private:
  const char* point(TokenId row) const {
    return graph_.getDataByInternalId(static_cast<hnswlib::tableint>(row));
  }

  Ippt ippt_;
  KernelSpace space_;
  hnswlib::HierarchicalNSW<float> graph_;
};

/// The rows that links lead to.
class Reached {
 public:
  explicit Reached(std::size_t vocab) : is_(vocab, false) {}

  bool contains(TokenId row) const { return is_[static_cast<std::size_t>(row)]; }
  std::size_t count() const { return count_; }

  /// Adds a row and all that `links_of` leads to from it.
  template <class LinksOf>
  void add(TokenId row, const LinksOf& links_of) {
    pending_.push_back(row);
    while (!pending_.empty()) {
      const TokenId next = pending_.back();
      pending_.pop_back();
      if (contains(next)) continue;
      is_[static_cast<std::size_t>(next)] = true;
      ++count_;
      for (const TokenId target : links_of(next)) pending_.push_back(target);
    }
  }

 private:
  std::vector<bool> is_;
  std::size_t count_ = 0;
  std::vector<TokenId> pending_;
};

/// The nearest to `row` of the rows of a range that are reached; −1 if none is.
template <class Range>
TokenId nearest_reached(const Hnsw& hnsw, TokenId row, const Range& range, const Reached& reached) {
  TokenId nearest = -1;
  float least = std::numeric_limits<float>::infinity();
  for (const TokenId other : range) {
    if (!reached.contains(other)) continue;
    const float distance = hnsw.distance(row, other);
    if (nearest >= 0 && distance >= least) continue;
    nearest = other;
    least = distance;
  }
  return nearest;
}

/// Insertion drops links in favour of shorter ones, until nothing leads to some rows. Each of these gets a
/// link from the nearest row that it links to itself and that is reached; where there is none, from the
/// nearest of all that are.
void link_unreached(const Hnsw& hnsw, std::span<const TokenId> entries,
                    std::vector<std::vector<TokenId>>& links) {
  const auto links_of = [&links](TokenId row) -> const std::vector<TokenId>& {
    return links[static_cast<std::size_t>(row)];
  };
  const auto vocab = static_cast<TokenId>(links.size());
  Reached reached(links.size());
  for (const TokenId entry : entries) reached.add(entry, links_of);
  const auto link_from = [&](TokenId from, TokenId row) {
    links[static_cast<std::size_t>(from)].push_back(row);
    reached.add(row, links_of);
  };
  for (TokenId row = 0; row < vocab; ++row) {
    if (reached.contains(row)) continue;
    const TokenId from = nearest_reached(hnsw, row, links_of(row), reached);
    if (from >= 0) link_from(from, row);
  }
  std::vector<TokenId> all(links.size());
  for (TokenId row = 0; row < vocab; ++row) all[static_cast<std::size_t>(row)] = row;
  for (TokenId row = 0; row < vocab; ++row) {
    if (!reached.contains(row)) link_from(nearest_reached(hnsw, row, all, reached), row);
  }
}

}  // namespace

Links::Links(const std::vector<std::vector<TokenId>>& of_rows) {
  std::vector<std::uint64_t> offsets;
  offsets.reserve(of_rows.size() + 1);
  offsets.push_back(0);
  for (const auto& targets : of_rows) offsets.push_back(offsets.back() + targets.size());
  std::vector<TokenId> all;
  all.reserve(offsets.back());
  for (const auto& targets : of_rows) all.insert(all.end(), targets.begin(), targets.end());
  offsets_ = StoredArray<std::uint64_t>::own(std::move(offsets));
  targets_ = StoredArray<TokenId>::own(std::move(all));
  find_most();
}

Links::Links(const IndexReader& in, const std::string& name)
    : targets_(in.tokens(name + ".targets", {IndexReader::any})) {
  offsets_ = in.offsets(name + ".offsets", {in.vocab() + 1}, targets_.size());
  find_most();
}

void Links::save(IndexWriter& out, const std::string& name) const {
  out.array(name + ".offsets", {offsets_.size()}, offsets_);
  out.array(name + ".targets", {targets_.size()}, targets_);
}

void Links::find_most() {
  for (std::size_t row = 0; row < rows(); ++row) {
    most_ = std::max(most_, static_cast<std::size_t>(offsets_[row + 1] - offsets_[row]));
  }
}

SmallWorldGraph::SmallWorldGraph(const SoftmaxLayer& layer, const SmallWorldOptions& options,
                                 std::vector<TokenId> entries)
    : entries_(std::move(entries)) {
  std::vector<std::vector<TokenId>> ground;
  try {
    const Hnsw hnsw(layer, options);
    if (entries_.empty()) {
      entries_.push_back(hnsw.entry());
      for (int level = hnsw.top_level(); level > 0; --level) upper_.emplace_back(hnsw.links(level));
    }
    ground = hnsw.links(0);
    link_unreached(hnsw, entries_, ground);
  } catch (const std::runtime_error& failure) {
    throw Error(std::string("fgd: hnswlib failed: ") + failure.what());
  }
  ground_ = Links(ground);
}

SmallWorldGraph::SmallWorldGraph(const IndexReader& in) {
  const StoredArray<TokenId> entries = in.tokens("entries", {IndexReader::any});
  if (entries.size() == 0) throw in.damaged("entries", "has no row to start from");
  entries_.assign(entries.begin(), entries.end());
  std::size_t layers = 0;
  in.option(kUpperLayers, layers);
  for (std::size_t i = 0; i < layers; ++i) upper_.emplace_back(in, upper_name(i));
  ground_ = Links(in, kGround);
}

void SmallWorldGraph::save(IndexWriter& out) const {
  out.array("entries", {entries_.size()}, StoredArray<TokenId>::borrow(entries_));
  out.option(kUpperLayers, upper_.size());
  for (std::size_t i = 0; i < upper_.size(); ++i) upper_[i].save(out, upper_name(i));
  ground_.save(out, kGround);
}

std::size_t SmallWorldGraph::reachable() const {
  Reached reached(ground_.rows());
  for (const TokenId entry : entries_) reached.add(entry, [this](TokenId row) { return ground_.of(row); });
  return reached.count();
}

std::size_t SmallWorldGraph::bytes() const {
  std::size_t bytes = ground_.bytes() + entries_.size() * sizeof(TokenId);
  for (const Links& layer : upper_) bytes += layer.bytes();
  return bytes;
}

}  // namespace topksoftmax
