// SPDX-License-Identifier: Apache-2.0
#include "topksoftmax/screeners/shortlist.hpp"

#include <algorithm>
#include <string>

#include "io/index_reader.hpp"
#include "io/index_writer.hpp"
#include "screeners/frequency_order.hpp"
#include "topksoftmax/error.hpp"

namespace topksoftmax {
namespace {

constexpr std::string_view kName = "shortlist";

}  // namespace

/// Tokens with copies of their rows, in one piece.
class PackedTokens {
 public:
  PackedTokens(const SoftmaxLayer& layer, std::vector<TokenId> ids) : ids_(std::move(ids)) {
    const kernels::Rows& all = layer.rows();
    const std::size_t row_bytes = all.dim * weight_bytes(all.type);
    weights_.resize(ids_.size() * row_bytes);
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      const auto token = static_cast<std::size_t>(ids_[i]);
      const auto* const row =
          static_cast<const std::byte*>(all.data) + token * all.stride * weight_bytes(all.type);
      std::copy_n(row, row_bytes, weights_.data() + i * row_bytes);
      if (all.bias != nullptr) biases_.push_back(all.bias[token]);
      if (all.scales != nullptr) scales_.push_back(all.scales[token]);
    }
    rows_ = all;
    rows_.data = weights_.data();
    rows_.stride = all.dim;
    rows_.count = ids_.size();
    if (all.bias != nullptr) rows_.bias = biases_.data();
    if (all.scales != nullptr) rows_.scales = scales_.data();
  }
  PackedTokens(const PackedTokens&) = delete;
  PackedTokens& operator=(const PackedTokens&) = delete;

  std::span<const TokenId> ids() const { return ids_; }
  const kernels::Rows& rows() const { return rows_; }
  std::size_t bytes() const { return rows_.bytes(rows_.count) + ids_.size() * sizeof(TokenId); }

 private:
  std::vector<TokenId> ids_;
  std::vector<std::byte> weights_;
  std::vector<float> biases_;
  std::vector<float> scales_;
  kernels::Rows rows_;
};

Candidates ShortlistScreener::screen(const Query& query, Workspace&) const {
  Candidates candidates;
  if (query.effort >= vocab_) {
    candidates.everything = true;
    return candidates;
  }
  const std::span<const TokenId> ids = tokens_->ids();
  candidates.ids = query.effort == 0 ? ids : ids.first(std::min(query.effort, ids.size()));
  candidates.packed = &tokens_->rows();
  return candidates;
}

std::size_t ShortlistScreener::index_bytes() const {
  return tokens_->bytes();
}

std::span<const TokenId> ShortlistScreener::tokens() const {
  return tokens_->ids();
}

Shortlist::Shortlist(const SoftmaxLayer& layer, StoredArray<TokenId> order, std::vector<TokenId> list,
                     std::size_t top_frequent)
    : ScreenedSoftmax(layer, ShortlistScreener(std::make_shared<const PackedTokens>(layer, std::move(list)),
                                               layer.vocab())),
      order_(std::move(order)),
      top_frequent_(top_frequent) {}

std::unique_ptr<Shortlist> Shortlist::build(SoftmaxLayer layer, const ShortlistOptions& options) {
  const std::size_t top = options.top_frequent.value_or(std::max<std::size_t>(layer.vocab() / 10, 1));
  if (top < 1) throw Error("shortlist: top_frequent is 0; it must be at least 1");
  const auto order = StoredArray<TokenId>::own(frequency_order(layer, options.counts, kName));
  const std::span<const TokenId> first = order.span().first(std::min(top, layer.vocab()));
  return std::unique_ptr<Shortlist>(new Shortlist(layer, order, {first.begin(), first.end()}, top));
}

void Shortlist::do_save(IndexWriter& out) const {
  out.kind(kName);
  out.option("top_frequent", top_frequent_);
  out.array("order", {order_.size()}, order_);
  const std::span<const TokenId> list = screener().tokens();
  out.array("list", {list.size()}, StoredArray<TokenId>::borrow(list));
}

std::unique_ptr<Shortlist> Shortlist::load(const std::filesystem::path& path, SoftmaxLayer layer) {
  return load(IndexReader::open(path, std::move(layer), kName));
}

std::unique_ptr<Shortlist> Shortlist::load(const IndexReader& in) {
  std::size_t top_frequent = 0;
  in.option("top_frequent", top_frequent);
  const StoredArray<TokenId> order = in.distinct_tokens("order", {in.vocab()});
  const StoredArray<TokenId> list = in.distinct_tokens("list", {IndexReader::any});
  return std::unique_ptr<Shortlist>(
      new Shortlist(in.layer(), order, {list.begin(), list.end()}, top_frequent));
}

std::unique_ptr<Shortlist> Shortlist::for_sentences(const AlignmentLists& lists,
                                                    std::span<const TokenId> source_tokens) const {
  if (lists.target_bound() > layer().vocab()) {
    throw Error("shortlist: the lists have target " + std::to_string(lists.target_bound() - 1) +
                "; the layer's tokens end before V = " + std::to_string(layer().vocab()));
  }
  std::vector<bool> chosen(layer().vocab(), false);
  for (const TokenId id : screener().tokens()) chosen[static_cast<std::size_t>(id)] = true;
  for (const TokenId source : source_tokens) {
    if (source < 0 || static_cast<std::size_t>(source) >= lists.size()) {
      throw Error("shortlist: source token " + std::to_string(source) + " is not one of the " +
                  std::to_string(lists.size()) + " that the lists have");
    }
    for (const TokenId target : lists.targets(source)) chosen[static_cast<std::size_t>(target)] = true;
  }
  std::vector<TokenId> list;
  for (const TokenId id : order_) {
    if (chosen[static_cast<std::size_t>(id)]) list.push_back(id);
  }
  return std::unique_ptr<Shortlist>(new Shortlist(layer(), order_, std::move(list), top_frequent_));
}

}  // namespace topksoftmax
