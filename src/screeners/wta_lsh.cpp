// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/screeners/wta_lsh.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "io/index_reader.hpp"
#include "io/index_writer.hpp"
#include "screeners/frequency_order.hpp"
#include "screeners/token_marks.hpp"
#include "screeners/wta_index.hpp"
#include "topksoftmax/error.hpp"
#include "topksoftmax/kernels/implementation.hpp"

namespace topksoftmax {
namespace {

constexpr std::string_view kName = "wta-lsh";

void check_threshold(std::size_t threshold, std::size_t bands) {
  if (threshold < 1 || threshold > bands) {
    throw Error("wta-lsh: threshold is " + std::to_string(threshold) + "; it must be between 1 and the " +
                std::to_string(bands) + " bands");
  }
}

}  // namespace

WtaLshScreener::WtaLshScreener(const SoftmaxLayer& layer, const WtaLshOptions& options)
    : threshold_(options.threshold),
      top_frequent_(std::min(options.top_frequent.value_or(layer.vocab() / 10), layer.vocab())) {
  check_threshold(options.threshold, options.hash.bands);
  const std::vector<TokenId> order = frequency_order(layer, options.counts, name());
  index_ = std::make_shared<const WtaIndex>(layer, options.hash);
  std::vector<std::uint64_t> frequent(index_->mark_words(), 0);
  for (std::size_t i = 0; i < top_frequent_; ++i) {
    const auto token = static_cast<std::size_t>(order[i]);
    frequent[token / 64] |= std::uint64_t{1} << (token % 64);
  }
  frequent_ = StoredArray<std::uint64_t>::own(std::move(frequent));
}

WtaLshScreener::WtaLshScreener(const IndexReader& in) : index_(std::make_shared<const WtaIndex>(in)) {
  in.option("threshold", threshold_);
  in.option("top_frequent", top_frequent_);
  in.check([&] { check_threshold(threshold_, index_->bands()); });
  constexpr std::string_view name = "frequent";
  frequent_ = in.array<std::uint64_t>(name, {index_->mark_words()});
  const std::size_t in_last = in.vocab() % 64;
  if (in_last != 0 && frequent_[frequent_.size() - 1] >> in_last != 0) {
    throw in.damaged(name, "has tokens of V = " + std::to_string(in.vocab()) + " or more");
  }
}

void WtaLshScreener::save(IndexWriter& out) const {
  out.kind(kName);
  out.option("threshold", threshold_);
  out.option("top_frequent", top_frequent_);
  index_->save(out);
  out.array("frequent", {frequent_.size()}, frequent_);
}

Candidates WtaLshScreener::screen(const Query& query, Workspace& workspace) const {
  return screen_batch(query, 0, 1, workspace).candidates;
}

WtaLshScreener::Shared WtaLshScreener::screen_batch(const Query& query, std::size_t stride, std::size_t batch,
                                                    Workspace& workspace) const {
  Candidates candidates;
  const std::size_t bands = index_->bands();
  std::size_t threshold = threshold_;
  if (query.effort != 0) threshold = query.effort > bands ? 0 : bands + 1 - query.effort;
  if (threshold == 0 || top_frequent_ == index_->vocab()) {
    candidates.everything = true;
    return {candidates, {}};
  }

  const std::size_t words = frequent_.size();
  auto* const scratch = workspace.screen[4].get<std::uint64_t>(2 * words + batch);
  const std::span<std::uint64_t> shared(scratch, words);
  const std::span<std::uint64_t> marks(scratch + words, words);
  const std::span<std::uint64_t> own(scratch + 2 * words, batch);
  std::fill(shared.begin(), shared.end(), 0);
  index_->for_each_context(query.h, stride, batch, workspace, [&](std::size_t q, const WtaIndex::Hits& hits) {
    std::copy(frequent_.begin(), frequent_.end(), marks.begin());
    own[q] = kernels::active().mark_reaching(hits.of_token, words, static_cast<std::uint16_t>(threshold),
                                             marks.data());
    if (query.edits.allowed != nullptr) own[q] = keep_allowed(query.edits.allowed, marks);
    for (std::size_t word = 0; word < words; ++word) shared[word] |= marks[word];
    candidates.screened += hits.total;
    candidates.bytes_read += index_->bytes_read(hits);
  });
  candidates.screened /= batch;
  candidates.bytes_read /= batch;
  auto* const ids = workspace.candidates.get<TokenId>(index_->vocab());
  candidates.ids = {ids, collect_tokens(shared, ids)};
  return {candidates, own};
}

std::size_t WtaLshScreener::index_bytes() const {
  return index_->bytes() + frequent_.size() * sizeof(frequent_[0]);
}

std::unique_ptr<WtaLsh> WtaLsh::build(SoftmaxLayer layer, const WtaLshOptions& options) {
  WtaLshScreener screener(layer, options);
  return std::unique_ptr<WtaLsh>(new WtaLsh(std::move(layer), std::move(screener)));
}

std::unique_ptr<WtaLsh> WtaLsh::load(const std::filesystem::path& path, SoftmaxLayer layer) {
  return load(IndexReader::open(path, std::move(layer), kName));
}

std::unique_ptr<WtaLsh> WtaLsh::load(const IndexReader& in) {
  return std::unique_ptr<WtaLsh>(new WtaLsh(in.layer(), WtaLshScreener(in)));
}

void WtaLsh::do_query_batch(const Query& query, std::size_t stride, std::size_t batch, Workspace& workspace,
                            TopK* answers) const {
  auto [candidates, own] = screener().screen_batch(query, stride, batch, workspace);
  answer_batch_from_candidates(layer(), query, stride, batch, candidates, workspace, answers);
  if (candidates.everything || candidates.ids.size() < query.k) return;
  // A context with fewer than k candidates of its own is answered from the whole vocabulary, as it is alone.
  candidates.everything = true;
  Query one = query;
  for (std::size_t q = 0; q < batch; ++q, one.h += stride) {
    if (own[q] < query.k) answer_from_candidates(layer(), one, candidates, workspace, answers[q]);
  }
}

}  // namespace topksoftmax
