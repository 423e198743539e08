// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/screeners/wta_lsh_each.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "io/index_reader.hpp"
#include "io/index_writer.hpp"
#include "screeners/token_marks.hpp"
#include "screeners/wta_index.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/kernels/implementation.hpp"

namespace topksoftmax {
namespace {

constexpr std::string_view kName = "wta-lsh-each";

void check_collisions(std::size_t top_collisions) {
  if (top_collisions == 0) throw Error("wta-lsh-each: top_collisions is 0; it must be at least 1");
}

/// Makes `marks` the allowed tokens that are hit at least `threshold` times; returns how many they are.
std::size_t mark(const WtaIndex::Hits& hits, std::size_t threshold, const std::uint64_t* allowed,
                 std::span<std::uint64_t> marks) {
  std::fill(marks.begin(), marks.end(), 0);
  const std::size_t marked = kernels::active().mark_reaching(
      hits.of_token, marks.size(), static_cast<std::uint16_t>(threshold), marks.data());
  return allowed == nullptr ? marked : keep_allowed(allowed, marks);
}

/// The highest threshold up to `bands` that at least `wanted` allowed tokens reach, or 1.
std::size_t threshold_for(std::size_t wanted, std::size_t bands, const WtaIndex::Hits& hits,
                          const std::uint64_t* allowed, std::span<std::uint64_t> marks) {
  std::size_t low = 1;
  std::size_t high = bands;
  while (low < high) {
    const std::size_t middle = (low + high + 1) / 2;
    if (mark(hits, middle, allowed, marks) >= wanted) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

/// Tokens that are hit at least `threshold` times, without the last of those hit no more often that are too
/// many.
std::span<const TokenId> first_wanted(std::span<TokenId> ids, std::size_t wanted, std::size_t threshold,
                                      const WtaIndex::Hits& hits) {
  std::size_t surplus = ids.size() > wanted ? ids.size() - wanted : 0;
  const std::size_t dropped = surplus;
  std::remove_if(ids.rbegin(), ids.rend(), [&](TokenId id) {
    if (surplus == 0 || hits.of_token[id] != threshold) return false;
    --surplus;
    return true;
  });
  return ids.subspan(dropped);
}

}  // namespace

WtaLshEachScreener::WtaLshEachScreener(const SoftmaxLayer& layer, const WtaLshEachOptions& options)
    : top_collisions_(options.top_collisions.value_or(std::max<std::size_t>(layer.vocab() / 10, 1))) {
  check_collisions(top_collisions_);
  index_ = std::make_shared<const WtaIndex>(layer, options.hash);
}

WtaLshEachScreener::WtaLshEachScreener(const IndexReader& in)
    : index_(std::make_shared<const WtaIndex>(in)), top_collisions_(0) {
  in.option("top_collisions", top_collisions_);
  in.check([&] { check_collisions(top_collisions_); });
}

void WtaLshEachScreener::save(IndexWriter& out) const {
  out.kind(kName);
  out.option("top_collisions", top_collisions_);
  index_->save(out);
}

Candidates WtaLshEachScreener::screen(const Query& query, Workspace& workspace) const {
  Candidates candidates;
  const std::size_t wanted = query.effort != 0 ? query.effort : top_collisions_;
  if (wanted >= index_->vocab()) {
    candidates.everything = true;
    return candidates;
  }
  const std::size_t words = index_->mark_words();
  const std::span<std::uint64_t> marks(workspace.screen[4].get<std::uint64_t>(words), words);
  auto* const ids = workspace.candidates.get<TokenId>(index_->vocab());
  index_->for_each_context(query.h, 0, 1, workspace, [&](std::size_t, const WtaIndex::Hits& hits) {
    const std::uint64_t* const allowed = query.edits.allowed;
    const std::size_t threshold = threshold_for(wanted, index_->bands(), hits, allowed, marks);
    mark(hits, threshold, allowed, marks);
    candidates.ids = first_wanted({ids, collect_tokens(marks, ids)}, wanted, threshold, hits);
    candidates.screened = hits.total;
    candidates.bytes_read = index_->bytes_read(hits);
  });
  return candidates;
}

std::size_t WtaLshEachScreener::index_bytes() const {
  return index_->bytes();
}

std::unique_ptr<WtaLshEach> WtaLshEach::build(SoftmaxLayer layer, const WtaLshEachOptions& options) {
  WtaLshEachScreener screener(layer, options);
  return std::unique_ptr<WtaLshEach>(new WtaLshEach(std::move(layer), std::move(screener)));
}

std::unique_ptr<WtaLshEach> WtaLshEach::load(const std::filesystem::path& path, SoftmaxLayer layer) {
  return load(IndexReader::open(path, std::move(layer), kName));
}

std::unique_ptr<WtaLshEach> WtaLshEach::load(const IndexReader& in) {
  return std::unique_ptr<WtaLshEach>(new WtaLshEach(in.layer(), WtaLshEachScreener(in)));
}

}  // namespace topksoftmax
