// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/screeners/lsh_mips.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/index_reader.hpp"
#include "io/index_writer.hpp"
#include "screeners/lifted_rows.hpp"
#include "stored_rows.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/kernels/implementation.hpp"
#include "topksoftmax/stored_array.hpp"

namespace topksoftmax {
namespace {

constexpr std::string_view kName = "lsh-mips";
constexpr std::size_t kMostBits = 24;

/// The options that an index file records.
template <class Options, class Visit>
void visit_options(Options& options, const Visit& visit) {
  visit("tables", options.tables);
  visit("bits", options.bits);
  visit("probes", options.probes);
  visit("seed", options.seed);
}

void check_options(const LshMipsOptions& options) {
  const auto refuse = [](const char* option, std::size_t value, const char* limit) {
    throw Error("lsh-mips: " + std::string(option) + " is " + std::to_string(value) + "; it must be " +
                limit);
  };
  if (options.tables < 1) refuse("tables", options.tables, "at least 1");
  if (options.bits < 1 || options.bits > kMostBits) refuse("bits", options.bits, "between 1 and 24");
  if (options.probes < 1) refuse("probes", options.probes, "at least 1");
}

/// Bits to change in a code, by their places in the order of falling doubt, and how unlikely that is.
struct Change {
  float cost;
  std::uint32_t places;
  std::uint32_t last;  ///< the highest of the places
};

bool dearer(const Change& a, const Change& b) {
  return a.cost != b.cost ? a.cost > b.cost : a.places > b.places;
}

}  // namespace

/// The tables: for each, the tokens ordered by code.
class LshMipsIndex {
 public:
  LshMipsIndex(const SoftmaxLayer& layer, const LshMipsOptions& options)
      : options_(options), vocab_(layer.vocab()) {
    const Eigen::MatrixXf lifted = lifted_rows(layer);
    std::mt19937_64 engine(options.seed);
    std::normal_distribution<float> normal;
    Eigen::MatrixXf directions(lifted.cols(), static_cast<Eigen::Index>(tables() * bits()));
    for (Eigen::Index i = 0; i < directions.size(); ++i) directions.data()[i] = normal(engine);
    directions_ = lifted_directions(directions);

    std::vector<std::uint32_t> all_offsets(tables() * (buckets() + 1), 0);
    std::vector<TokenId> ids(tables() * vocab_);
    std::vector<std::uint32_t> codes(vocab_);
    for (std::size_t table = 0; table < tables(); ++table) {
      const Eigen::MatrixXf projections =
          lifted *
          directions.middleCols(static_cast<Eigen::Index>(table * bits()), static_cast<Eigen::Index>(bits()));
      std::uint32_t* const offsets = all_offsets.data() + table * (buckets() + 1);
      for (std::size_t token = 0; token < vocab_; ++token) {
        const Eigen::VectorXf row = projections.row(static_cast<Eigen::Index>(token));
        codes[token] = code_of(row.data());
        ++offsets[codes[token] + 1];
      }
      for (std::size_t bucket = 0; bucket < buckets(); ++bucket) offsets[bucket + 1] += offsets[bucket];
      std::vector<std::uint32_t> next(offsets, offsets + buckets());
      for (std::size_t token = 0; token < vocab_; ++token) {
        ids[table * vocab_ + next[codes[token]]++] = static_cast<TokenId>(token);
      }
    }
    offsets_ = StoredArray<std::uint32_t>::own(std::move(all_offsets));
    ids_ = StoredArray<TokenId>::own(std::move(ids));
  }

  explicit LshMipsIndex(const IndexReader& in) : vocab_(in.vocab()) {
    visit_options(options_, in.options());
    in.check([&] { check_options(options_); });
    ids_ = in.tokens("ids", {tables(), vocab_});
    const std::size_t bits_in_all = tables() * bits();  // which the ids have shown to be possible
    directions_ = StoredRows(in.floats("directions", {bits_in_all, in.dim()}), in.dim(),
                             in.floats("directions.offsets", {bits_in_all}));
    offsets_ = in.array<std::uint32_t>("offsets", {tables(), buckets() + 1});
    for (std::size_t table = 0; table < tables(); ++table) {
      in.check_offsets("offsets", offsets_.span().subspan(table * (buckets() + 1), buckets() + 1), vocab_);
    }
  }

  void save(IndexWriter& out) const {
    visit_options(options_, out.options());
    out.array("directions", {directions_.count(), directions_.dim()}, directions_.weights());
    out.array("directions.offsets", {directions_.count()}, directions_.biases());
    out.array("offsets", {tables(), buckets() + 1}, offsets_);
    out.array("ids", {tables(), vocab_}, ids_);
  }

  std::size_t vocab() const { return vocab_; }
  std::size_t tables() const { return options_.tables; }
  std::size_t bits() const { return options_.bits; }
  std::size_t probes() const { return options_.probes; }
  std::size_t buckets() const { return std::size_t{1} << bits(); }
  kernels::Rows projections() const { return directions_.rows(); }

  std::size_t bytes() const {
    return directions_.rows().bytes(tables() * bits()) + offsets_.size() * sizeof(offsets_[0]) +
           ids_.size() * sizeof(ids_[0]);
  }

  /// The code of bits() projections: their signs.
  std::uint32_t code_of(const float* projections) const {
    std::uint32_t code = 0;
    for (std::size_t bit = 0; bit < bits(); ++bit) code |= projections[bit] > 0.0F ? 1U << bit : 0U;
    return code;
  }

  std::span<const TokenId> bucket(std::size_t table, std::uint32_t code) const {
    const std::uint32_t* const offsets = offsets_.data() + table * (buckets() + 1) + code;
    return {ids_.data() + table * vocab_ + offsets[0], offsets[1] - offsets[0]};
  }

 private:
  LshMipsOptions options_;
  std::size_t vocab_;
  StoredRows directions_;               ///< bit b of table t is number t·bits + b
  StoredArray<std::uint32_t> offsets_;  ///< [tables × (2^bits + 1)]
  StoredArray<TokenId> ids_;            ///< [tables × V], of one bucket ascending
};

namespace {

/// Calls visit(code) for the `probes` codes nearest to the projections, the nearest first.
template <class Visit>
void for_each_probe(const LshMipsIndex& index, const float* projections, std::size_t probes,
                    Workspace& workspace, const Visit& visit) {
  const std::uint32_t code = index.code_of(projections);
  visit(code);
  if (probes == 1) return;
  const std::size_t bits = index.bits();
  std::uint32_t order[kMostBits];
  for (std::size_t bit = 0; bit < bits; ++bit) order[bit] = static_cast<std::uint32_t>(bit);
  const auto cost_of = [&](std::size_t place) { return std::abs(projections[order[place]]); };
  std::sort(order, order + bits, [&](std::uint32_t a, std::uint32_t b) {
    const float of_a = std::abs(projections[a]);
    const float of_b = std::abs(projections[b]);
    return of_a != of_b ? of_a < of_b : a < b;
  });
  // Every set of places follows from one cheaper: by moving its last place on, or by adding the next one.
  auto* const heap = workspace.screen[1].get<Change>(2 * probes);
  std::size_t size = 0;
  const auto push = [&](Change change) {
    heap[size++] = change;
    std::push_heap(heap, heap + size, dearer);
  };
  push({cost_of(0), 1, 0});
  for (std::size_t probe = 1; probe < probes && size > 0; ++probe) {
    std::pop_heap(heap, heap + size, dearer);
    const Change change = heap[--size];
    std::uint32_t changed = code;
    for (std::size_t place = 0; place <= change.last; ++place) {
      if ((change.places >> place & 1U) != 0) changed ^= 1U << order[place];
    }
    visit(changed);
    const std::uint32_t next = change.last + 1;
    if (next == bits) continue;
    const std::uint32_t added = change.places | 1U << next;
    push({change.cost + cost_of(next), added, next});
    push({change.cost + cost_of(next) - cost_of(change.last), added ^ (1U << change.last), next});
  }
}

}  // namespace

Candidates LshMipsScreener::screen(const Query& query, Workspace& workspace) const {
  Candidates candidates;
  const std::size_t probes = query.effort != 0 ? query.effort : index_->probes();
  if (probes >= index_->buckets()) {
    candidates.everything = true;
    return candidates;
  }
  const kernels::Rows directions = index_->projections();
  auto* const projections = workspace.screen[0].get<float>(directions.count);
  kernels::active().scan(directions, 0, directions.count, query.h, projections);

  auto* const ids = workspace.candidates.get<TokenId>(index_->vocab());
  workspace.seen.clear(index_->vocab());
  std::size_t found = 0;
  std::size_t met = 0;
  for (std::size_t table = 0; table < index_->tables(); ++table) {
    for_each_probe(*index_, projections + table * index_->bits(), probes, workspace, [&](std::uint32_t code) {
      const std::span<const TokenId> bucket = index_->bucket(table, code);
      met += bucket.size();
      for (const TokenId id : bucket) {
        if (workspace.seen.insert(id)) ids[found++] = id;
      }
    });
  }
  candidates.ids = {ids, found};
  candidates.screened = met;
  candidates.bytes_read = directions.bytes(directions.count) +
                          index_->tables() * probes * 2 * sizeof(std::uint32_t) + met * sizeof(TokenId);
  return candidates;
}

std::size_t LshMipsScreener::index_bytes() const {
  return index_->bytes();
}

void LshMipsScreener::save(IndexWriter& out) const {
  out.kind(kName);
  index_->save(out);
}

std::unique_ptr<LshMips> LshMips::load(const std::filesystem::path& path, SoftmaxLayer layer) {
  return load(IndexReader::open(path, std::move(layer), kName));
}

std::unique_ptr<LshMips> LshMips::load(const IndexReader& in) {
  auto index = std::make_shared<const LshMipsIndex>(in);
  return std::unique_ptr<LshMips>(new LshMips(in.layer(), LshMipsScreener(std::move(index))));
}

std::unique_ptr<LshMips> LshMips::build(SoftmaxLayer layer, const LshMipsOptions& options) {
  check_options(options);
  auto index = std::make_shared<const LshMipsIndex>(layer, options);
  return std::unique_ptr<LshMips>(new LshMips(std::move(layer), LshMipsScreener(std::move(index))));
}

}  // namespace topksoftmax
