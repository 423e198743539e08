// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/screeners/greedy_mips.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "io/index_reader.hpp"
#include "io/index_writer.hpp"
#include "parallel.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/stored_array.hpp"

namespace topksoftmax {
namespace {

constexpr std::string_view kName = "greedy-mips";

/// A token and its weight in some coordinate.
struct Entry {
  float weight;
  TokenId id;
};

/// A coordinate's next product.
struct Next {
  float product;
  std::uint32_t coordinate;
};

/// Throws Error for a budget that cannot be used.
void check_budget(std::size_t budget) {
  if (budget == 0) throw Error("greedy-mips: budget is 0; it must be at least 1");
}

bool smaller(const Next& a, const Next& b) {
  return a.product != b.product ? a.product < b.product : a.coordinate > b.coordinate;
}

/// Restores the heap after its first element changed.
void sift_down(Next* heap, std::size_t size) {
  const Next moved = heap[0];
  std::size_t at = 0;
  for (std::size_t child = 1; child < size; child = 2 * at + 1) {
    if (child + 1 < size && smaller(heap[child], heap[child + 1])) ++child;
    if (!smaller(moved, heap[child])) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = moved;
}

}  // namespace

class GreedyMipsIndex {
 public:
  explicit GreedyMipsIndex(const SoftmaxLayer& layer)
      : vocab_(layer.vocab()), dim_(layer.dim()), coordinates_(dim_ + (layer.has_bias() ? 1 : 0)) {
    std::vector<Entry> entries(coordinates_ * vocab_);
    const RowMajorMatrix W = layer.weights();
    for_each_part(coordinates_, 1, [&](std::size_t j, std::size_t) {
      Entry* const sorted = entries.data() + j * vocab_;
      for (std::size_t token = 0; token < vocab_; ++token) {
        const auto row = static_cast<Eigen::Index>(token);
        const float weight = j == dim_ ? layer.rows().bias[token] : W(row, static_cast<Eigen::Index>(j));
        sorted[token] = {weight, static_cast<TokenId>(token)};
      }
      std::sort(sorted, sorted + vocab_, [](const Entry& a, const Entry& b) {
        return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
      });
    });
    entries_ = StoredArray<Entry>::own(std::move(entries));
  }

  explicit GreedyMipsIndex(const IndexReader& in)
      : vocab_(in.vocab()),
        dim_(in.dim()),
        coordinates_(dim_ + (in.layer().has_bias() ? 1 : 0)),
        entries_(in.array<Entry>(kEntries, {coordinates_, vocab_, 2}, DataType::int32)) {
    for (const Entry& entry : entries_) {
      if (!std::isnan(entry.weight) && entry.id >= 0 && static_cast<std::size_t>(entry.id) < vocab_) {
        continue;
      }
      throw in.damaged(kEntries, "has the token " + std::to_string(entry.id) + " with the weight " +
                                     std::to_string(entry.weight));
    }
  }

  void save(IndexWriter& out) const {
    out.array(kEntries, {coordinates_, vocab_, 2}, entries_, DataType::int32);
  }

  std::size_t vocab() const { return vocab_; }
  std::size_t coordinates() const { return coordinates_; }
  std::size_t bytes() const { return entries_.size() * sizeof(Entry); }

  /// The context's value in a coordinate.
  float context(const float* h, std::size_t coordinate) const {
    return coordinate < dim_ ? h[coordinate] : 1.0F;
  }

  /// The entry with the rank-th largest product in a coordinate, for a context's value x there.
  const Entry& entry(std::size_t coordinate, float x, std::size_t rank) const {
    return entries_[coordinate * vocab_ + (x >= 0.0F ? rank : vocab_ - 1 - rank)];
  }

 private:
  static constexpr std::string_view kEntries = "entries";
  static_assert(sizeof(Entry) == 2 * sizeof(std::int32_t));

  std::size_t vocab_;
  std::size_t dim_;
  std::size_t coordinates_;
  StoredArray<Entry> entries_;  ///< [coordinates × V], each coordinate's by falling weight
};

Candidates GreedyMipsScreener::screen(const Query& query, Workspace& workspace) const {
  Candidates candidates;
  const GreedyMipsIndex& index = *index_;
  const std::size_t budget = query.effort != 0 ? query.effort : budget_;
  if (budget >= index.vocab()) {
    candidates.everything = true;
    return candidates;
  }
  const std::size_t coordinates = index.coordinates();
  auto* const ranks = workspace.screen[0].get<std::uint32_t>(coordinates);
  auto* const heap = workspace.screen[1].get<Next>(coordinates);
  for (std::size_t j = 0; j < coordinates; ++j) {
    const float x = index.context(query.h, j);
    ranks[j] = 0;
    heap[j] = {x * index.entry(j, x, 0).weight, static_cast<std::uint32_t>(j)};
  }
  std::make_heap(heap, heap + coordinates, smaller);

  auto* const ids = workspace.candidates.get<TokenId>(budget);
  workspace.seen.clear(index.vocab());
  std::size_t found = 0;
  std::size_t met = 0;
  const auto take = [&](TokenId id) {
    ++met;
    if (!query.edits.allows(id) || !workspace.seen.insert(id)) return false;
    ids[found++] = id;
    return true;
  };
  for (std::size_t size = coordinates; size > 0 && found < budget;) {
    const std::size_t j = heap[0].coordinate;
    const float x = index.context(query.h, j);
    take(index.entry(j, x, ranks[j]).id);
    // On to the next token of this coordinate that is not among the candidates yet.
    std::uint32_t rank = ranks[j] + 1;
    while (rank < index.vocab()) {
      const TokenId id = index.entry(j, x, rank).id;
      if (query.edits.allows(id) && !workspace.seen.contains(id)) break;
      ++rank;
      ++met;
    }
    ranks[j] = rank;
    if (rank < index.vocab()) {
      heap[0].product = x * index.entry(j, x, rank).weight;
    } else {
      heap[0] = heap[--size];
    }
    sift_down(heap, size);
  }
  candidates.ids = {ids, found};
  candidates.screened = met;
  candidates.bytes_read = (coordinates + met) * sizeof(Entry);
  return candidates;
}

std::size_t GreedyMipsScreener::index_bytes() const {
  return index_->bytes();
}

void GreedyMipsScreener::save(IndexWriter& out) const {
  out.kind(kName);
  out.option("budget", budget_);
  index_->save(out);
}

std::unique_ptr<GreedyMips> GreedyMips::load(const std::filesystem::path& path, SoftmaxLayer layer) {
  return load(IndexReader::open(path, std::move(layer), kName));
}

std::unique_ptr<GreedyMips> GreedyMips::load(const IndexReader& in) {
  std::size_t budget = 0;
  in.option("budget", budget);
  in.check([&] { check_budget(budget); });
  auto index = std::make_shared<const GreedyMipsIndex>(in);
  return std::unique_ptr<GreedyMips>(
      new GreedyMips(in.layer(), GreedyMipsScreener(std::move(index), budget)));
}

std::unique_ptr<GreedyMips> GreedyMips::build(SoftmaxLayer layer, const GreedyMipsOptions& options) {
  const std::size_t budget = options.budget.value_or(std::max<std::size_t>(layer.vocab() / 10, 1));
  check_budget(budget);
  auto index = std::make_shared<const GreedyMipsIndex>(layer);
  return std::unique_ptr<GreedyMips>(
      new GreedyMips(std::move(layer), GreedyMipsScreener(std::move(index), budget)));
}

}  // namespace topksoftmax
