// SPDX-License-Identifier: Apache-2.0
#include "screeners/wta_index.hpp"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "io/index_reader.hpp"
#include "io/index_writer.hpp"
#include "parallel.hpp"
#include "topksoftmax/kernels/implementation.hpp"

namespace topksoftmax {
namespace {

constexpr std::size_t kGroup = WtaHash::kGroup;

/// Contexts from which on hashing a whole group, one a lane, is cheaper than each alone.
constexpr std::size_t kWorthAGroup = 4;

/// Tokens at the beginning of a span that are counted whether there are as many or not.
constexpr std::size_t kSpanHead = 8;

/// The options that an index file records.
template <class Options, class Visit>
void visit_options(Options& options, const Visit& visit) {
  visit("K", options.K);
  visit("units_per_band", options.units_per_band);
  visit("bands", options.bands);
  visit("seed", options.seed);
}

WtaHash read_hash(const IndexReader& in) {
  WtaHashOptions options;
  visit_options(options, in.options());
  const StoredArray<std::int32_t> positions =
      in.array<std::int32_t>("positions", {IndexReader::any, IndexReader::any, IndexReader::any, kGroup});
  std::optional<WtaHash> hash;
  in.check([&] { hash.emplace(in.dim(), options, positions); });
  return *hash;
}

/// Tokens that have a context's code in some band.
struct Span {
  const TokenId* tokens;
  std::size_t length;
};

/// The band's tokens in the order of their codes, and the table of the spans of equal ones. keys [V] holds
/// code and token, the code in the upper half, and is sorted.
CuckooTable make_band(std::vector<std::uint64_t>& keys, TokenId* tokens) {
  std::sort(keys.begin(), keys.end());
  std::vector<CuckooTable::Entry> entries;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto code = static_cast<std::uint32_t>(keys[i] >> 32);
    if (entries.empty() || entries.back().key != code)
      entries.push_back({code, static_cast<std::uint32_t>(i), 0});
    ++entries.back().length;
    tokens[i] = static_cast<TokenId>(keys[i] & 0xffffffffU);
  }
  return CuckooTable(entries);
}

}  // namespace

WtaIndex::WtaIndex(const SoftmaxLayer& layer, const WtaHashOptions& options)
    : hash_(layer.dim(), options), vocab_(layer.vocab()) {
  std::vector<TokenId> tokens(bands() * vocab_ + kSpanHead);
  // Rows in groups of 16, transposed, as the kernel takes them.
  const std::size_t dim = layer.dim();
  const std::size_t row_groups = (vocab_ + kGroup - 1) / kGroup;
  std::vector<float> columns(row_groups * dim * kGroup);
  std::vector<float> row(dim);
  for (std::size_t token = 0; token < vocab_; ++token) {
    layer.copy_row(token, row.data());
    float* const group = columns.data() + token / kGroup * dim * kGroup + token % kGroup;
    for (std::size_t j = 0; j < dim; ++j) group[j * kGroup] = row[j];
  }

  const kernels::WtaBands kernel_bands = hash_.kernel_bands();
  std::vector<std::vector<CuckooTable>> tables(kernel_bands.groups);
  for_each_part(kernel_bands.groups, 1, [&](std::size_t g, std::size_t) {
    std::vector<std::uint32_t> codes(row_groups * kGroup * kGroup);  // [row group][band][row]
    for (std::size_t r = 0; r < row_groups; ++r) {
      kernels::active().wta_codes_batch(kernel_bands.part(g, 1), columns.data() + r * dim * kGroup,
                                        codes.data() + r * kGroup * kGroup);
    }
    std::vector<std::uint64_t> keys(vocab_);
    for (std::size_t w = g * kGroup; w < std::min(hash_.bands(), (g + 1) * kGroup); ++w) {
      for (std::size_t token = 0; token < vocab_; ++token) {
        const std::uint32_t code = codes[(token / kGroup * kGroup + w % kGroup) * kGroup + token % kGroup];
        keys[token] = std::uint64_t{code} << 32 | token;
      }
      tables[g].push_back(make_band(keys, tokens.data() + w * vocab_));
    }
  });
  tables_.reserve(hash_.bands());
  for (auto& group : tables) std::move(group.begin(), group.end(), std::back_inserter(tables_));
  tokens_ = StoredArray<TokenId>::own(std::move(tokens));
}

WtaIndex::WtaIndex(const IndexReader& in)
    : hash_(read_hash(in)), vocab_(in.vocab()), tokens_(in.tokens("tokens", {bands() * vocab_ + kSpanHead})) {
  constexpr std::string_view name = "slots";
  const auto slots = in.array<CuckooTable::Entry>(name, {IndexReader::any, 3}, DataType::uint32);
  for (const CuckooTable::Entry& slot : slots) {
    if (slot.start > vocab_ || slot.length > vocab_ - slot.start) {
      throw in.damaged(name, "has a span of " + std::to_string(slot.length) + " from " +
                                 std::to_string(slot.start) + ", a band ends at " + std::to_string(vocab_));
    }
  }
  const StoredArray<std::uint64_t> starts = in.offsets("slot_offsets", {bands() + 1}, slots.size());
  const auto seeds = in.array<std::uint64_t>("seeds", {bands()});
  tables_.reserve(bands());
  for (std::size_t w = 0; w < bands(); ++w) {
    const auto of_band = slots.span().subspan(starts[w], starts[w + 1] - starts[w]);
    in.check([&] { tables_.emplace_back(StoredArray(of_band, slots.owner()), seeds[w]); });
  }
}

void WtaIndex::save(IndexWriter& out) const {
  visit_options(hash_.options(), out.options());
  const std::size_t groups = hash_.kernel_bands().groups;
  out.array("positions", {groups, hash_.options().units_per_band, hash_.compared(), kGroup},
            hash_.positions());
  out.array("tokens", {tokens_.size()}, tokens_);
  std::vector<CuckooTable::Entry> slots;
  std::vector<std::uint64_t> starts = {0};
  std::vector<std::uint64_t> seeds;
  for (const CuckooTable& table : tables_) {
    slots.insert(slots.end(), table.slots().begin(), table.slots().end());
    starts.push_back(slots.size());
    seeds.push_back(table.seed());
  }
  out.array("slots", {slots.size(), 3}, StoredArray<CuckooTable::Entry>::own(slots), DataType::uint32);
  out.array("slot_offsets", {starts.size()}, StoredArray<std::uint64_t>::own(starts));
  out.array("seeds", {seeds.size()}, StoredArray<std::uint64_t>::own(seeds));
}

std::size_t WtaIndex::bytes() const {
  std::size_t bytes = hash_.bytes() + tokens_.size() * sizeof(TokenId);
  for (const CuckooTable& table : tables_) bytes += sizeof(CuckooTable) + table.bytes();
  return bytes;
}

WtaIndex::Codes WtaIndex::hash(const float* contexts, std::size_t stride, std::size_t count,
                               Workspace& workspace) const {
  const std::size_t bands = hash_.padded_bands();
  auto* const codes = workspace.screen[0].get<std::uint32_t>(bands * kGroup);
  if (count < kWorthAGroup) {
    for (std::size_t i = 0; i < count; ++i) hash_.band_codes(contexts + i * stride, codes + i * bands);
    return {codes, 1, bands};
  }
  auto* const columns = workspace.screen[1].get<float>(hash_.dim() * kGroup);
  hash_.band_codes_batch(contexts, stride, count, columns, codes);
  return {codes, kGroup, 1};
}

WtaIndex::Hits WtaIndex::count_hits(const Codes& codes, std::size_t context, Workspace& workspace) const {
  const std::size_t bands = hash_.bands();
  const std::uint32_t* const of_context = codes.codes + context * codes.context_stride;
  const auto code_of = [&](std::size_t w) { return of_context[w * codes.band_stride]; };

  // Slots and spans lie all over the index: each is asked for, for all bands, before the first is used.
  auto* const slots = workspace.screen[2].get<const CuckooTable::Entry*>(bands);
  for (std::size_t w = 0; w < bands; ++w) {
    const CuckooTable& table = tables_[w];
    hwy::Prefetch(&table.slots()[table.slots_of(code_of(w))[0]]);
  }
  for (std::size_t w = 0; w < bands; ++w) {
    slots[w] = &tables_[w].slots()[tables_[w].slot_of(code_of(w))];
    hwy::Prefetch(slots[w]);
  }
  auto* const spans = workspace.screen[1].get<Span>(bands);
  Hits hits{nullptr, 0};
  for (std::size_t w = 0; w < bands; ++w) {
    const std::size_t length = slots[w]->key == code_of(w) ? slots[w]->length : 0;
    spans[w] = {tokens_.data() + w * vocab_ + (length == 0 ? 0 : slots[w]->start), length};
    hwy::Prefetch(spans[w].tokens);
    hits.total += length;
  }

  auto* const counts = workspace.screen[2].get<std::uint16_t>(mark_words() * 64);
  std::fill_n(counts, mark_words() * 64, std::uint16_t{0});
  // Spans are short and of any length, which no branch predictor foresees: so their beginnings are copied one
  // behind the other, always as many tokens, and counted in one go.
  auto* const heads = workspace.screen[3].get<TokenId>(bands * kSpanHead);
  TokenId* end = heads;
  for (std::size_t w = 0; w < bands; ++w) {
    const Span span = spans[w];
    std::memcpy(end, span.tokens, kSpanHead * sizeof(TokenId));
    end += std::min(span.length, kSpanHead);
    for (std::size_t i = kSpanHead; i < span.length; ++i) ++counts[span.tokens[i]];
  }
  for (const TokenId* token = heads; token < end; ++token) ++counts[*token];
  hits.of_token = counts;
  return hits;
}

}  // namespace topksoftmax
